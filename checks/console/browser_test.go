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

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/internal/need"
)

var background = context.Background()

// patience is for what another process does; what takes that long has failed.
const patience = 20 * time.Second

// tab is a page of a browser of its own.
type tab struct {
	*testing.T
	ctx context.Context
}

func openTab(t *testing.T, address string) tab {
	t.Helper()
	path := need.Program(t, "chromium", "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.Flag("force-prefers-reduced-motion", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(background, options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		closeTab()
		end()
	})
	x := tab{t, ctx}
	x.do(chromedp.EmulateViewport(1400, 900), chromedp.Navigate(address))
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

// until waits, within the page, for an expression to be true. One that throws is not.
func (x tab) until(expression string) {
	x.Helper()
	_, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool](fmt.Sprintf(`new Promise((resolve, reject) => {
		const end = performance.now() + %d
		const check = () => {
			let is = false, threw = ""
			try { is = Boolean(%s) } catch (e) { threw = e }
			if (is) resolve(true)
			else if (performance.now() > end) reject(new Error("it never was so; " + threw + " " + document.body.innerText.slice(0, 1500).replaceAll("\n", " / ")))
			else setTimeout(check, 20)
		}
		check()
	})`, patience.Milliseconds(), expression), chromedp.EvalAwaitPromise))
	require.NoError(x, err, expression)
}

// shows waits for a text in the page.
func (x tab) shows(text string) {
	x.Helper()
	x.until(fmt.Sprintf("document.body.innerText.includes(%s)", quote(text)))
}

// click clicks the first visible element that a selector and a text find; "" is any text.
func (x tab) click(selector, text string) {
	x.Helper()
	found := fmt.Sprintf(`[...(document.querySelector("dialog:last-of-type") ?? document).querySelectorAll(%s)].find(e => e.checkVisibility() && !e.disabled && e.textContent.includes(%s))`, quote(selector), quote(text))
	x.until(found)
	x.run(found + ".click()")
}

// fill enters a text as a user does.
func (x tab) fill(selector, text string) {
	x.Helper()
	x.until(fmt.Sprintf("document.querySelector(%s)", quote(selector)))
	x.run(fmt.Sprintf(`const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event("input", { bubbles: true }))`, quote(selector), quote(text)))
}

func (x tab) view(fragment string) {
	x.Helper()
	x.run("location.hash = " + quote(fragment))
}

// quote writes a text as JavaScript does.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// media makes the browser prefer a colour scheme.
func media(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// site serves a console below /ops/console/.
type site struct {
	address string
	down    atomic.Bool  // whether every request is refused
	streams atomic.Int32 // that are open
	cutAll  atomic.Pointer[context.CancelFunc]
	server  *http.Server
}

// cut ends the streams that are open.
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
