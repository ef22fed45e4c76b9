package chrome

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// Axe checks the accessibility of views with axe-core.
type Axe struct {
	x      Tab
	source string
}

// finding is a rule that a view violates.
type finding struct {
	Rule, Impact, Help string
	Nodes              []string
}

// NewAxe returns an Axe for the page of a tab. A test that lacks axe-core is skipped.
func NewAxe(x Tab) Axe {
	x.Helper()
	path := os.Getenv("LIMBO_AXE")
	if path == "" {
		cache, err := os.UserCacheDir()
		require.NoError(x, err)
		path = filepath.Join(cache, "limbo", "node_modules", "axe-core", "axe.min.js")
	}
	source, err := os.ReadFile(path)
	if err != nil {
		need.Missing(x, "axe-core is not installed: bash .ci/axe.sh installs it, or LIMBO_AXE names its axe.min.js")
	}
	return Axe{x, string(source)}
}

// Check applies all rules to the current view with light colours, and the rules for colours with
// dark ones. The test fails for serious and critical findings, and logs the others.
func (a Axe) Check(view string) {
	x := a.x
	x.Helper()
	for _, scheme := range []string{"light", "dark"} {
		x.Do(Media("prefers-color-scheme", scheme))
		rules := ""
		if scheme == "dark" {
			rules = `, runOnly: ["cat.color"]`
		}
		x.inject(a.source)
		// The page's own policy still applies: axe-core runs through the browser's DevTools
		// protocol.
		found, err := chromedp.Run(x.Ctx, chromedp.Evaluate[[]finding](`axe.run(document, { preload: false, resultTypes: ["violations"]`+rules+` }).then(r => r.violations.map(v => ({
			Rule: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.map(n => n.target.join(" ") + "  " + n.html.slice(0, 200) + "  " + n.failureSummary.replaceAll("\n", " ")),
		})))`, chromedp.EvalAwaitPromise))
		require.NoError(x, err, view)
		for _, f := range found {
			text := fmt.Sprintf("%s, %s: %s: %s: %s\n\t%s", view, scheme, f.Impact, f.Rule, f.Help, strings.Join(f.Nodes, "\n\t"))
			if f.Impact == "serious" || f.Impact == "critical" {
				x.Error(text)
			} else {
				x.Log(text)
			}
		}
	}
}

// inject runs a script in the page, unless it has run there before.
func (x Tab) inject(source string) {
	x.Helper()
	if !Eval[bool](x, `"axe" in window`) {
		_, err := chromedp.Run(x.Ctx, chromedp.Evaluate[bool](source+"; true"))
		require.NoError(x, err)
	}
}
