package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/seed-782fa212/limbo/checks/internal/servers"
	"github.com/seed-782fa212/limbo/durable/console"
)

var background = context.Background()

// waitLimit limits the wait for another process.
const waitLimit = time.Minute

func TestMain(m *testing.M) {
	code := chrome.Main(m)
	servers.Remove()
	os.Exit(code)
}

// tab is a page of the console.
type tab struct{ chrome.Tab }

func openTab(t *testing.T, address string) tab {
	t.Helper()
	return tab{chrome.Open(t, chrome.Browser(t), waitLimit, chromedp.EmulateViewport(1400, 900), chromedp.Navigate(address))}
}

// openInWindow opens a tab in which Escape closes dialogs, and of which pictures can be taken.
func openInWindow(t *testing.T, address string) tab {
	t.Helper()
	return tab{chrome.OpenInWindow(t, chrome.Browser(t), waitLimit, chromedp.EmulateViewport(1400, 900), chromedp.Navigate(address))}
}

func eval[V any](x tab, expression string) V {
	x.Helper()
	return chrome.Eval[V](x.Tab, expression)
}

// shows waits for a text in the page.
func (x tab) shows(text string) {
	x.Helper()
	x.Until(fmt.Sprintf("document.body.innerText.includes(%s)", quote(text)))
}

// click clicks the first visible element that matches a selector and contains a text; "" matches
// any text.
func (x tab) click(selector, text string) {
	x.Helper()
	x.Until(fmt.Sprintf(`(e => e && (e.click(), true))([...(document.querySelector("dialog:last-of-type") ?? document).querySelectorAll(%s)].find(e => e.checkVisibility() && !e.disabled && e.textContent.includes(%s)))`, quote(selector), quote(text)))
}

// fill enters a text like a user.
func (x tab) fill(selector, text string) {
	x.Helper()
	x.Until(fmt.Sprintf("document.querySelector(%s)", quote(selector)))
	x.Script(fmt.Sprintf(`const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event("input", { bubbles: true }))`, quote(selector), quote(text)))
}

func (x tab) view(fragment string) {
	x.Helper()
	x.Script("location.hash = " + quote(fragment))
}

// quote returns a text as a JavaScript literal.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// site serves a console below /ops/console/.
type site struct {
	address string
	down    atomic.Bool  // every request is refused
	streams atomic.Int32 // number of open streams
	cutAll  atomic.Pointer[context.CancelFunc]
	server  *http.Server
}

// cut closes all open streams.
func (s *site) cut() { (*s.cutAll.Load())() }

func serve(t *testing.T, c *console.Console) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &site{address: "http://" + l.Addr().String() + "/ops/console/"}
	mounted := http.StripPrefix("/ops/console", c)
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/live") {
			s.streams.Add(1)
			defer s.streams.Add(-1)
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			s.cutAll.Store(&cancel)
			r = r.WithContext(ctx)
		}
		mounted.ServeHTTP(w, r)
	})}
	go func() { _ = s.server.Serve(l) }()
	t.Cleanup(func() {
		c.Close()
		_ = s.server.Close()
	})
	return s
}
