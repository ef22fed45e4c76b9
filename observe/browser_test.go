package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var background = context.Background()

// patience is for what another process does; what takes that long has failed.
const patience = time.Minute

// chromium starts a browser, and returns a context whose tabs are its.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path := program(t, "chromium", "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(background, options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		closeTab()
		cancel()
	})
	require.NoError(t, chromedp.Do(ctx)) // the browser lives as long as this context
	return ctx
}

// leavesNone has the test end only when as many goroutines are left as there are now. It is
// called first, so that it is checked last.
func leavesNone(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Since(start) > patience {
				buf := make([]byte, 1<<16)
				t.Fatalf("%d goroutines, not %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
		}
	})
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
	handler atomic.Pointer[Handler] // what requests come to
	server  *http.Server
	address string
}

// startSite serves a registry at an address of loopback.
func startSite(t *testing.T, r *Registry, address string) *site {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s := &site{address: listener.Addr().String()}
	s.handler.Store(NewHandler(r))
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.Load().ServeHTTP(w, r) })}
	go func() { _ = s.server.Serve(listener) }()
	t.Cleanup(s.stop)
	return s
}

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

// onNewDocument has each document of the tab run a script before its own.
func onNewDocument(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}
