package page

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/stretchr/testify/require"
)

var background = context.Background()

// waitLimit limits the wait for another process.
const waitLimit = time.Minute

func TestMain(m *testing.M) { os.Exit(chrome.Main(m)) }

func openTab(t *testing.T, browser context.Context, actions ...chromedp.Action[chromedp.Void]) chrome.Tab {
	t.Helper()
	return chrome.OpenInWindow(t, browser, waitLimit, actions...)
}

// site is a server of a registry's page.
type site struct {
	handler  atomic.Pointer[observe.Handler]  // handles all requests
	replacer atomic.Pointer[strings.Replacer] // replaces words in responses, if not nil
	server   *http.Server
	address  string
}

// startSite serves a registry at a loopback address.
func startSite(t *testing.T, r *observe.Registry, address string) *site {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s := &site{address: listener.Addr().String()}
	s.handler.Store(observe.NewHandler(r))
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if replacer := s.replacer.Load(); replacer != nil {
			r.Header.Del("Accept-Encoding")
			w = replacingWriter{w, replacer}
		}
		s.handler.Load().ServeHTTP(w, r)
	})}
	go func() { _ = s.server.Serve(listener) }()
	t.Cleanup(s.stop)
	return s
}

// replacingWriter replaces words in a response.
type replacingWriter struct {
	http.ResponseWriter
	words *strings.Replacer
}

func (w replacingWriter) Write(b []byte) (int, error) {
	_, err := w.words.WriteString(w.ResponseWriter, string(b))
	return len(b), err
}

func (w replacingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// stop ends the streams, and the connections. It may be called before the test ends.
func (s *site) stop() {
	s.handler.Load().Close()
	_ = s.server.Close()
}

func (s *site) url() string { return "http://" + s.address + "/" }

// onNewDocument makes each document of the tab run a script before its own scripts.
func onNewDocument(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}
