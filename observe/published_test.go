package observe

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/stretchr/testify/require"
)

// published returns the metrics of each kind, as the rows of README.md's table. The custom
// source stands for the metric that every such source has.
func published(t *testing.T) (rows []string) {
	registered := prometheus.NewRegistry()
	registered.MustRegister(newEveryKind(t).registry)
	for name, f := range gathered(t, registered) {
		if strings.HasPrefix(name, "limbo_journal_") && !strings.HasSuffix(name, invalid) {
			continue
		}
		if strings.HasSuffix(name, invalid) {
			name = "limbo_<kind>_" + invalid
		}
		rows = append(rows, "| `"+name+"` | "+strings.ToLower(f.GetType().String())+" | "+labels(f)+" | "+strings.TrimSuffix(f.GetHelp(), ".")+" |")
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// labels returns the labels of a family, except name, with their values.
func labels(f *dto.MetricFamily) string {
	values := map[string][]string{}
	for _, m := range f.Metric {
		for _, l := range m.Label {
			if l.GetName() != "name" && !slices.Contains(values[l.GetName()], l.GetValue()) {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
	}
	text := ""
	for name, v := range values {
		slices.Sort(v)
		text += "`" + name + "`: " + strings.Join(v, ", ")
	}
	return text
}

// The table in README.md matches the collected metrics.
func TestTableOfMetrics(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `limbo_") {
			rows = append(rows, strings.TrimSuffix(line, "\n"))
		}
	}
	require.True(t, slices.IsSorted(rows))
	want := published(t)
	require.Equal(t, want, rows, "the table is:\n%s", strings.Join(want, "\n"))
}

// Every metric named in the other pages, the dashboard and the alerts is collected.
func TestNamesOfMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, row := range published(t) {
		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| `"), "`")
		known[name] = true
	}
	name := regexp.MustCompile(`limbo_[a-z_]+[a-z]`)
	for file, least := range map[string]int{"README.md": 40, "doc.go": 1, "grafana/dashboard.json": 40, "prometheus/alerts.yml": 8, "prometheus/alerts_test.yml": 8} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := name.FindAllString(string(text), -1)
		require.GreaterOrEqual(t, len(found), least, file)
		for _, n := range found {
			require.True(t, known[n] || known[strings.TrimSuffix(n, "_bucket")], "%s: %s", file, n)
		}
	}
}

func TestAlerts(t *testing.T) {
	promtool := need.Program(t, "prometheus", "promtool")
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", "prometheus/alerts.yml"},
		{"test", "rules", "prometheus/alerts_test.yml"},
	} {
		output, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	text, err := os.ReadFile("prometheus/alerts.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile("prometheus/alerts_test.yml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, alerts, 4)
	require.Equal(t, 4, strings.Count(string(text), "description:"))
	for _, a := range alerts {
		fires := regexp.MustCompile(`alertname: ` + a[1] + `\n        exp_alerts:`)
		silent := regexp.MustCompile(`alertname: ` + a[1] + `}`)
		require.Regexp(t, fires, string(tests))
		require.Regexp(t, silent, string(tests))
	}
}

// requireRules waits until the server has evaluated each of the alerts without an error.
func requireRules(t *testing.T, p *prometheusServer) {
	t.Helper()
	type answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	p.asked = time.Now()
	for {
		response, err := http.Get("http://" + p.address + "/api/v1/rules")
		require.NoError(t, err)
		var a answer
		err = json.NewDecoder(response.Body).Decode(&a)
		response.Body.Close()
		require.NoError(t, err)
		require.Len(t, a.Data.Groups, 1)
		require.Len(t, a.Data.Groups[0].Rules, 4)
		evaluated := 0
		for _, r := range a.Data.Groups[0].Rules {
			require.Empty(t, r.LastError, r.Name)
			if r.Health == "ok" {
				evaluated++
			}
		}
		if evaluated == 4 {
			return
		}
		p.pause(t)
	}
}

// dashboard is the part of grafana/dashboard.json that the tests read.
type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  struct{ UID string }
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ RefID, Expr, LegendFormat string }
}

func readDashboard(t *testing.T) (d dashboard) {
	text, err := os.ReadFile("grafana/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// dashboardQueries returns the queries of the dashboard as Grafana would send them.
func dashboardQueries(t *testing.T) (all []string) {
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "1m", "$job", "limbo", "$instance", ".*", "$name", ".*").Replace(target.Expr))
		}
	}
	return all
}

func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	require.GreaterOrEqual(t, d.SchemaVersion, 41)
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	var variables []string
	for _, v := range d.Templating.List[1:] {
		variables = append(variables, v.Name)
	}
	require.Equal(t, []string{"job", "instance", "name"}, variables, "each narrows those after it")
	ids, rows := map[int]bool{}, []string(nil)
	place := map[[2]int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.False(t, place[at] || at[0] >= 24, "%s lies on another panel", p.Title)
				place[at] = true
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.Contains(t, []string{"short", "s", "ops", "bytes"}, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			selected := strings.Count(target.Expr, `{job=~"$job",instance=~"$instance",name=~"$name"`)
			require.Positive(t, selected, p.Title)
			require.Equal(t, strings.Count(target.Expr, "{"), selected, p.Title)
			require.Contains(t, target.LegendFormat, "{{name}}", p.Title)
		}
	}
	require.Equal(t, []string{"Purgatories", "Wheels", "Calls", "Scheduler", "Long polls and delay queues", "Durable timers"}, rows)
}
