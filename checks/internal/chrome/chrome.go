// Package chrome drives pages in Chromium, for the tests of the pages.
package chrome

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// Main runs the tests of a package, which share a browser, and returns the exit code. Parallel
// tests mostly wait for other processes, so more of them run at once than there are processors;
// but each open tab costs time as well.
func Main(m *testing.M) (code int) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code = m.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, "the browser:", err)
		return 1
	}
	return code
}

// shared is the browser of the process.
var shared browser

type browser struct {
	mu    sync.Mutex
	ctx   context.Context // guarded by mu; nil before the start
	close func() error    // guarded by mu; nil before the start
}

// Browser returns the context of the browser that the tests of the process share. Its process
// starts with the first call, without a window, and runs until Main ends. A test that lacks
// Chromium is skipped.
func Browser(t *testing.T) context.Context {
	t.Helper()
	path := need.Program(t, "chromium", "chromium")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ctx == nil {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU,
			chromedp.Flag("force-prefers-reduced-motion", true),
			chromedp.Flag("renderer-process-limit", "4")) // tabs share processes, which are slow to start
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox)
		}
		allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, closeTab := chromedp.NewContext(allocator)
		require.NoError(t, chromedp.Do(ctx)) // the browser runs as long as this context
		shared.ctx = ctx
		shared.close = func() error {
			defer end()
			defer closeTab()
			if err := chromedp.Cancel(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
	return shared.ctx
}

func (b *browser) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.close == nil {
		return nil
	}
	return b.close()
}

// Open opens a tab that is in no window, and is closed when the test ends. It takes a fifth of the
// CPU of one in a window, but no picture of it can be taken, and it does not handle every input:
// Escape closes no dialog, and the mouse does not reach every element. Tests of these use
// OpenInWindow. Scripts find the tab in the user's focus, regardless of other tabs. All tabs share
// their cookies, which browsers keep by host and not by port.
func Open(t *testing.T, browser context.Context, waitLimit time.Duration, actions ...chromedp.Action[chromedp.Void]) Tab {
	t.Helper()
	yes := true
	created, err := cdp.Call(browser, chromedp.FromContext(browser).Browser, target.CreateTarget,
		target.CreateTargetParams{URL: "about:blank", Hidden: &yes, Background: &yes})
	require.NoError(t, err)
	return open(t, browser, waitLimit, slices.Concat(sized, actions), chromedp.WithTargetID(created.TargetID))
}

// OpenInWindow opens a tab as Open does, in a window.
func OpenInWindow(t *testing.T, browser context.Context, waitLimit time.Duration, actions ...chromedp.Action[chromedp.Void]) Tab {
	t.Helper()
	return open(t, browser, waitLimit, actions)
}

func open(t *testing.T, browser context.Context, waitLimit time.Duration, actions []chromedp.Action[chromedp.Void], options ...chromedp.ContextOption) Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, options...)
	t.Cleanup(cancel)
	x := Tab{T: t, Ctx: ctx, WaitLimit: waitLimit}
	x.Do(focused)
	x.Do(actions...)
	return x
}

// sized is the size of a tab that is in no window.
var sized = []chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(800, 600)}

var focused = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return err
})

// Tab is a page of a browser.
type Tab struct {
	*testing.T
	Ctx       context.Context
	WaitLimit time.Duration // time limit of Until
}

// Do runs actions.
func (x Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	x.Helper()
	require.NoError(x, chromedp.Do(x.Ctx, actions...))
}

// Eval returns the value of an expression in the page.
func Eval[V any](x Tab, expression string) V {
	x.Helper()
	v, err := chromedp.Run(x.Ctx, chromedp.Evaluate[V](expression))
	require.NoError(x, err, expression)
	return v
}

// Script runs statements in the page.
func (x Tab) Script(statements string) {
	x.Helper()
	require.True(x, Eval[bool](x, "{"+statements+"}; true"))
}

// Until waits, within the page, for an expression to be true. An expression that throws counts
// as false. It uses a promise and not chromedp's Poll, which needs the eval that the pages'
// policies forbid.
func (x Tab) Until(expression string) {
	x.Helper()
	_, err := chromedp.Run(x.Ctx, chromedp.Evaluate[bool](fmt.Sprintf(`new Promise((resolve, reject) => {
		const end = performance.now() + %d
		const check = () => {
			let is = false, threw = ""
			try { is = Boolean(%s) } catch (e) { threw = e }
			if (is) resolve(true)
			else if (performance.now() > end) reject(new Error("it never was so; " + threw + " " + document.body.innerText.slice(0, 1500).replaceAll("\n", " / ")))
			else setTimeout(check, 10)
		}
		check()
	})`, x.WaitLimit.Milliseconds(), expression), chromedp.EvalAwaitPromise))
	require.NoError(x, err, expression)
}

// Media makes the browser prefer a value of a media feature, such as dark for prefers-color-scheme.
func Media(feature, value string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
		})
		return err
	})
}
