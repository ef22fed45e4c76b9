package console

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sessionFor   = 12 * time.Hour
	maxEnded     = 10_000 // remembered logouts
	throttleFor  = time.Minute
	maxWrong     = 5    // wrong tokens from one address within throttleFor
	maxAddresses = 4096 // addresses with wrong tokens; further addresses share one entry
)

// sessions checks the sessions of users who entered the token, remembers those that were ended by a
// logout, and counts wrong tokens. A session is only a cookie, signed with a key that is derived
// from the token. So all processes with the same token accept it, and none keeps it.
type sessions struct {
	token  [sha256.Size]byte
	open   bool // there is no token
	key    []byte
	cookie string // depends on the token, so that consoles on different ports of a host do not share it

	mu    *sync.Mutex
	ended map[sessionID]time.Time      // guarded by mu; when they began
	since time.Time                    // guarded by mu; sessions that began until then are refused
	wrong map[netip.Prefix][]time.Time // guarded by mu; times within throttleFor, by network
}

type sessionID [16]byte

func newSessions(token string) (sessions, error) {
	s := sessions{
		token: sha256.Sum256([]byte(token)), open: token == "",
		mu: new(sync.Mutex), ended: map[sessionID]time.Time{}, wrong: map[netip.Prefix][]time.Time{},
	}
	if s.open {
		return s, nil
	}
	// The holder of a cookie can test guesses of the token against its signature. The iterations
	// make that slow if the token is a phrase.
	key, err := pbkdf2.Key(sha256.New, token, []byte("limbo console: key of sessions"), 100_000, sha256.Size)
	if err != nil {
		return s, fmt.Errorf("console: %w", err)
	}
	s.key = key
	s.cookie = "limbo_console_" + hex.EncodeToString(s.sign([]byte("the cookie's name"))[:4])
	return s, nil
}

func (s *sessions) sign(text []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(text)
	return mac.Sum(nil)
}

// begin returns the value of the cookie of a new session: a random ID, the present in milliseconds,
// and their signature.
func (s *sessions) begin() string {
	text := make([]byte, len(sessionID{}), 64)
	_, _ = rand.Read(text) // it never fails
	text = binary.BigEndian.AppendUint64(text, uint64(time.Now().UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(text, s.sign(text)...))
}

// read returns the session of a request's cookie, and false if the signature is wrong or the session
// has expired. The clock of the process that began it may be ahead.
func (s *sessions) read(r *http.Request) (id sessionID, begun time.Time, ok bool) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return id, begun, false
	}
	value, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	const signed = len(id) + 8
	if err != nil || len(value) < signed || !hmac.Equal(value[signed:], s.sign(value[:signed])) {
		return id, begun, false
	}
	begun = time.UnixMilli(int64(binary.BigEndian.Uint64(value[len(id):])))
	return sessionID(value[:len(id)]), begun, time.Since(begun).Abs() < sessionFor
}

// valid reports whether a request has a session, or needs none.
func (s *sessions) valid(r *http.Request) bool {
	if s.open {
		return true
	}
	id, begun, ok := s.read(r)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ended := s.ended[id]
	return !ended && begun.After(s.since)
}

// end makes this process refuse a request's session. After too many logouts it refuses all sessions
// that began before.
func (s *sessions) end(r *http.Request) {
	id, begun, ok := s.read(r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded {
		maps.DeleteFunc(s.ended, func(_ sessionID, begun time.Time) bool { return time.Since(begun) >= sessionFor })
	}
	if len(s.ended) >= maxEnded {
		clear(s.ended)
		s.since = time.Now()
	}
	s.ended[id] = begun
}

// try compares a token with the right one. A network that has sent too many wrong tokens must wait
// for the returned time; until then try refuses even the right token, because its answer would show
// which guess is right.
func (s *sessions) try(from netip.Prefix, token string) (right bool, wait time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.wrong[from]; !known && len(s.wrong) >= maxAddresses {
		maps.DeleteFunc(s.wrong, func(_ netip.Prefix, times []time.Time) bool {
			return now.Sub(times[len(times)-1]) >= throttleFor
		})
		if len(s.wrong) >= maxAddresses {
			from = netip.Prefix{}
		}
	}
	times := slices.DeleteFunc(s.wrong[from], func(at time.Time) bool { return now.Sub(at) >= throttleFor })
	if len(times) >= maxWrong {
		s.wrong[from] = times
		return false, throttleFor - now.Sub(times[0])
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 {
		delete(s.wrong, from)
		return true, 0
	}
	s.wrong[from] = append(times, now)
	return false, 0
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
		client := c.client(r)
		right, wait := c.sessions.try(networkOf(client), login.Token)
		if wait > 0 {
			c.options.Logger.Warn("console: too many wrong tokens", "remote", r.RemoteAddr, "client", client)
			writeError(w, &failure{
				Status: http.StatusTooManyRequests, Message: "too many wrong tokens came from this address: wait a minute",
				RetryAfter: int((wait + time.Second - 1) / time.Second),
			})
			return
		}
		if !right {
			c.options.Logger.Warn("console: wrong token", "remote", r.RemoteAddr, "client", client)
			writeError(w, &failure{Status: http.StatusUnauthorized, Message: "this is not the token"})
			return
		}
		c.log(r, "login")
		http.SetCookie(w, c.cookieOf(r, c.sessions.begin(), int(sessionFor/time.Second)))
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

// serveLogout removes the browser's cookie. Other processes would accept a copy of it: a logout is
// not stored.
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
