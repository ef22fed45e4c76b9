// Package chrome drives pages in Chromium, for the tests of the pages.
package chrome

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// Start starts a browser without a window, in a process of its own, which lives until the returned
// function is called. New tabs are contexts of chromedp below the returned one. A test that lacks
// Chromium is skipped.
func Start(t *testing.T) (ctx context.Context, closeIt func() error) {
	t.Helper()
	path := need.Program(t, "chromium", "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.Flag("force-prefers-reduced-motion", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	closeIt = func() error {
		defer end()
		defer closeTab()
		if err := chromedp.Cancel(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	require.NoError(t, chromedp.Do(ctx)) // the browser lives as long as this context
	return ctx, closeIt
}

// Tab is a page of a browser.
type Tab struct {
	*testing.T
	Ctx      context.Context
	Patience time.Duration // of Until: what takes that long has failed
}

// Do carries out actions.
func (x Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	x.Helper()
	require.NoError(x, chromedp.Do(x.Ctx, actions...))
}

// Eval returns the value of an expression of the page's.
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

// Until waits, within the page, for an expression to be true. One that throws is not. It is
// a promise and not chromedp's Poll, which needs the eval that the pages' policies forbid.
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
	})`, x.Patience.Milliseconds(), expression), chromedp.EvalAwaitPromise))
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
