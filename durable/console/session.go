package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sessionFor   = 12 * time.Hour
	throttleFor  = time.Minute
	maxWrong     = 5    // wrong tokens from one address within throttleFor
	maxAddresses = 4096 // addresses with wrong tokens; further addresses share one entry
)

// sessions holds the sessions of users who entered the token, and counts wrong tokens.
type sessions struct {
	token  [sha256.Size]byte
	open   bool   // there is no token
	cookie string // random, so that consoles on different ports of a host do not share it
	most   int

	mu    *sync.Mutex
	live  map[[sha256.Size]byte]time.Time // guarded by mu; expiry by hash of the cookie's value
	wrong map[string][]time.Time          // guarded by mu; times within throttleFor, by address
}

func newSessions(token string, most int) sessions {
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // it never fails
	return sessions{
		token: sha256.Sum256([]byte(token)), open: token == "", most: most,
		cookie: "limbo_console_" + hex.EncodeToString(suffix[:]),
		mu:     new(sync.Mutex),
		live:   map[[sha256.Size]byte]time.Time{}, wrong: map[string][]time.Time{},
	}
}

// valid reports whether a request has a session, or needs none.
func (s *sessions) valid(r *http.Request) bool {
	if s.open {
		return true
	}
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.live[sha256.Sum256([]byte(cookie.Value))])
}

// begin adds a session and returns the value of its cookie. If there are too many sessions, the
// oldest ends.
func (s *sessions) begin() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	value := base64.RawURLEncoding.EncodeToString(secret[:])
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest [sha256.Size]byte
	first := now.Add(sessionFor)
	for hash, end := range s.live {
		if !now.Before(end) {
			delete(s.live, hash)
		} else if !end.After(first) {
			oldest, first = hash, end
		}
	}
	if len(s.live) >= s.most {
		delete(s.live, oldest)
	}
	s.live[sha256.Sum256([]byte(value))] = now.Add(sessionFor)
	return value
}

func (s *sessions) end(r *http.Request) {
	if cookie, err := r.Cookie(s.cookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, sha256.Sum256([]byte(cookie.Value)))
	}
}

// try compares a token with the right one. An address that has sent too many wrong tokens must wait
// for the returned time; until then try refuses even the right token, so that guessing cannot go
// on.
func (s *sessions) try(remote, token string) (right bool, wait time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	address := addressOf(remote)
	if _, known := s.wrong[address]; !known && len(s.wrong) >= maxAddresses {
		for other, times := range s.wrong {
			if now.Sub(times[len(times)-1]) >= throttleFor {
				delete(s.wrong, other)
			}
		}
		if len(s.wrong) >= maxAddresses {
			address = ""
		}
	}
	times := slices.DeleteFunc(s.wrong[address], func(at time.Time) bool { return now.Sub(at) >= throttleFor })
	if len(times) >= maxWrong {
		s.wrong[address] = times
		return false, throttleFor - now.Sub(times[0])
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 {
		delete(s.wrong, address)
		return true, 0
	}
	s.wrong[address] = append(times, now)
	return false, 0
}

// addressOf returns the key by which wrong tokens are counted: an IPv4 address, or the /64 network
// of an IPv6 address, because one machine has many addresses in its network.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64)
	return network.String()
}

// serveSession tells the page whether to ask for the token, and which features to show.
func (c *Console) serveSession(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Login    bool   `json:"login"` // the user must enter the token
		Token    bool   `json:"token"` // the console has a token
		ReadOnly bool   `json:"read_only"`
		API      string `json:"api,omitempty"`
	}{!c.sessions.valid(r), !c.sessions.open, c.options.ReadOnly, c.options.API})
}

func (c *Console) serveLogin(w http.ResponseWriter, r *http.Request) {
	var login struct {
		Token string `json:"token"`
	}
	if err := readJSON(r, &login); err != nil {
		writeError(w, err)
		return
	}
	if !c.sessions.open {
		right, wait := c.sessions.try(r.RemoteAddr, login.Token)
		if wait > 0 {
			c.options.Logger.Warn("console: too many wrong tokens", "remote", r.RemoteAddr)
			writeError(w, &failure{
				Status: http.StatusTooManyRequests, Message: "too many wrong tokens came from this address: wait a minute",
				RetryAfter: int((wait + time.Second - 1) / time.Second),
			})
			return
		}
		if !right {
			c.options.Logger.Warn("console: wrong token", "remote", r.RemoteAddr)
			writeError(w, &failure{Status: http.StatusUnauthorized, Message: "this is not the token"})
			return
		}
		c.log(r, "login")
		http.SetCookie(w, c.cookieOf(r, c.sessions.begin(), int(sessionFor/time.Second)))
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

func (c *Console) serveLogout(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(r)
	http.SetCookie(w, c.cookieOf(r, "", -1))
	writeJSON(w, http.StatusOK, struct{}{})
}

// cookieOf returns a cookie without a Path: the browser's default is the folder of the
// request, the console's api/, wherever the console is mounted.
func (c *Console) cookieOf(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: c.sessions.cookie, Value: value, MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://"),
	}
}
