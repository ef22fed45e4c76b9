package page

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/stretchr/testify/require"
)

var background = context.Background()

// patience is for what another process does; what takes that long has failed.
const patience = time.Minute

// TestMain ends the browser that the tests share. Tests that run in parallel wait for other
// processes most of the time, so all of them do at once.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := closeBrowser(); err != nil {
		fmt.Fprintln(os.Stderr, "the browser:", err)
		code = 1
	}
	os.Exit(code)
}

// The browser that the tests share: each has tabs of its own.
var browser struct {
	mu    sync.Mutex
	ctx   context.Context // guarded by mu; nil: it has not been started
	close func() error    // guarded by mu
}

// chromium returns a context whose tabs are those of the browser.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path := need.Program(t, "chromium", "chromium")
	browser.mu.Lock()
	defer browser.mu.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.Flag("force-prefers-reduced-motion", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(background, options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	browser.close = func() error {
		defer cancel()
		defer closeTab()
		return chromedp.Cancel(ctx)
	}
	require.NoError(t, chromedp.Do(ctx)) // the browser lives as long as this context
	browser.ctx = ctx
	return ctx
}

func closeBrowser() error {
	browser.mu.Lock()
	defer browser.mu.Unlock()
	if browser.close == nil {
		return nil
	}
	err := browser.close()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// tab is a page of the browser.
type tab struct {
	*testing.T
	ctx context.Context
}

func openTab(t *testing.T, browser context.Context, actions ...chromedp.Action[chromedp.Void]) tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	x := tab{t, ctx}
	x.do(focused)
	x.do(actions...)
	return x
}

func (x tab) do(actions ...chromedp.Action[chromedp.Void]) {
	x.Helper()
	require.NoError(x, chromedp.Do(x.ctx, actions...))
}

// eval returns the value of an expression of the page's.
func eval[T any](x tab, expression string) T {
	x.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expression))
	require.NoError(x, err, expression)
	return v
}

// run runs statements in the page.
func (x tab) run(statements string) {
	x.Helper()
	require.True(x, eval[bool](x, "{"+statements+"}; true"))
}

// until waits, within the page, for an expression to be true. One that throws is not. It is
// a promise and not chromedp's Poll, which needs the eval that the page's policy forbids.
func (x tab) until(expression string) {
	x.Helper()
	_, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool](fmt.Sprintf(`new Promise((resolve, reject) => {
		const end = performance.now() + %d
		const check = () => {
			let is = false, threw = ""
			try { is = Boolean(%s) } catch (e) { threw = e }
			if (is) resolve(true)
			else if (performance.now() > end) reject(new Error("it never was so; " + threw + " " + document.body.innerText.slice(0, 600).replaceAll("\\n", " / ")))
			else setTimeout(check, 10)
		}
		check()
	})`, patience.Milliseconds(), expression), chromedp.EvalAwaitPromise))
	require.NoError(x, err, expression)
}

// site is a server of a registry's page.
type site struct {
	handler atomic.Pointer[observe.Handler]  // what requests come to
	spoil   atomic.Pointer[strings.Replacer] // of what is answered; nil: nothing
	server  *http.Server
	address string
}

// startSite serves a registry at an address of loopback.
func startSite(t *testing.T, r *observe.Registry, address string) *site {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s := &site{address: listener.Addr().String()}
	s.handler.Store(observe.NewHandler(r))
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if spoil := s.spoil.Load(); spoil != nil {
			r.Header.Del("Accept-Encoding")
			w = spoiled{w, spoil}
		}
		s.handler.Load().ServeHTTP(w, r)
	})}
	go func() { _ = s.server.Serve(listener) }()
	t.Cleanup(s.stop)
	return s
}

// spoiled replaces words in what is written.
type spoiled struct {
	http.ResponseWriter
	words *strings.Replacer
}

func (w spoiled) Write(b []byte) (int, error) {
	_, err := w.words.WriteString(w.ResponseWriter, string(b))
	return len(b), err
}

func (w spoiled) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// stop ends the streams, and the connections. It may be called before the test ends.
func (s *site) stop() {
	s.handler.Load().Close()
	_ = s.server.Close()
}

func (s *site) url() string { return "http://" + s.address + "/" }

// media has the browser prefer a colour scheme, or the like.
func media(feature, value string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
		})
		return err
	})
}

// focused makes the tab one that a person looks at and types into, whatever other tabs the
// browser has.
var focused = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return err
})

// onNewDocument has each document of the tab run a script before its own.
func onNewDocument(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}
