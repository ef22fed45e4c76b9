package main

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/internal/programs"
)

func readFile(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// scrapeMetrics returns what a timerd publishes that has made a callback, run a schedule and
// answered a request.
func scrapeMetrics(t *testing.T) string {
	addr := serveTimerd(t, noEnv)
	ask := func(method, path, body string) string {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		reply, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Less(t, res.StatusCode, 300, "%s", reply)
		return string(reply)
	}
	ask("PUT", "/timers/a", `{"after":"0s","callback":{"url":"http://`+addr+`/healthz","method":"GET"}}`)
	var text string
	require.Eventually(t, func() bool { // until the store has been read
		text = ask("GET", "/metrics", "")
		return strings.Contains(text, "limbo_durable_waiting{") && strings.Contains(text, `limbo_webhook_late_seconds_count{name="webhook"} 1`)
	}, time.Minute, 5*time.Millisecond)
	return text
}

// operatorDashboard is the part of deploy/dashboard.json that the tests read.
type operatorDashboard struct {
	UID        string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ UID string }
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ Expr string }
	}
}

// Every metric in the dashboard and in the alerts is one that timerd publishes, and each query of
// the dashboard selects series that it publishes.
func TestOperatorQueries(t *testing.T) {
	text := scrapeMetrics(t)
	types := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		types[m[1]] = m[2]
	}
	require.Greater(t, len(types), 25)
	for name, least := range map[string]int{"dashboard.json": 30, "alerts.yml": 5, "alerts_test.yml": 10} {
		found := regexp.MustCompile(`limbo_[a-z_]+[a-z]`).FindAllString(readFile(t, "deploy/"+name), -1)
		require.GreaterOrEqual(t, len(found), least, name)
		for _, metric := range found {
			if h, ok := strings.CutSuffix(metric, "_bucket"); ok && types[h] == "histogram" {
				continue
			}
			require.Contains(t, types, metric, name)
		}
	}

	var d operatorDashboard
	require.NoError(t, json.Unmarshal([]byte(readFile(t, "deploy/dashboard.json")), &d))
	require.Equal(t, "timerd", d.UID)
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	require.Equal(t, "job", d.Templating.List[1].Name)
	require.Equal(t, "instance", d.Templating.List[2].Name)
	ids, taken := map[int]bool{}, map[[2]int]bool{}
	var queries []string
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.False(t, taken[at] || at[0] >= 24, "%s lies on another panel", p.Title)
				taken[at] = true
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, strings.Count(target.Expr, "{"), strings.Count(target.Expr, `{job=~"$job",instance=~"$instance"`), p.Title)
			queries = append(queries, target.Expr)
		}
	}
	require.GreaterOrEqual(t, len(queries), 20)
	requireData(t, text, queries)
}

// requireData lets promtool evaluate each query on the scraped series. It is a test of alerts, of
// which each fires if its query returns a number.
func requireData(t *testing.T, text string, queries []string) {
	promtool := need.Program(t, "prometheus", "promtool")
	type object = map[string]any
	var rules, tests, series []object
	for i, q := range queries {
		q = strings.NewReplacer("$__rate_interval", "5m", "$job", "timerd|other", "$instance", ".*").Replace(q)
		name := "Q" + strconv.Itoa(i)
		rules = append(rules, object{"alert": name, "expr": "count((" + q + ") >= 0) > 0"})
		tests = append(tests, object{"eval_time": "10m", "alertname": name, "exp_alerts": []object{{"exp_labels": object{}, "exp_annotations": object{}}}})
	}
	sample := regexp.MustCompile(`(?m)^(\w+)\{(.*)\} \S+$`)
	for _, m := range sample.FindAllStringSubmatch(text+"\nlimbo_timerd_requests_total{name=\"api\",status=\"504\"} 1", -1) {
		series = append(series, object{"series": m[1] + `{job="timerd",instance="i",` + m[2] + "}", "values": "0+1x10"})
	}
	dir := t.TempDir()
	for name, content := range map[string]any{
		"rules.yml": object{"groups": []object{{"name": "dashboard", "rules": rules}}},
		"tests.yml": object{"rule_files": []string{"rules.yml"}, "evaluation_interval": "1m", "tests": []object{{"interval": "1m", "input_series": series, "alert_rule_test": tests}}},
	} {
		b, err := json.Marshal(content) // which is YAML, too
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	output, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "tests.yml")).CombinedOutput()
	require.NoError(t, err, "%s\n%s", output, strings.Join(queries, "\n"))
}

// Each alert has a description, and a test in which it fires and one in which it does not.
func TestOperatorAlerts(t *testing.T) {
	rules, tests := readFile(t, "deploy/alerts.yml"), readFile(t, "deploy/alerts_test.yml")
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	require.Len(t, alerts, 4)
	require.Equal(t, len(alerts), strings.Count(rules, "description:"))
	for _, a := range alerts {
		require.Regexp(t, `alertname: `+a[1]+`\n        exp_alerts:`, tests)
		require.Contains(t, tests, "alertname: "+a[1]+"}")
	}
}

// unit returns the settings of deploy/timerd.service by name.
func unit(t *testing.T) map[string][]string {
	settings := map[string][]string{}
	for line := range strings.Lines(readFile(t, "deploy/timerd.service")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			settings[name] = append(settings[name], value)
		}
	}
	return settings
}

func TestSystemdUnit(t *testing.T) {
	u := unit(t)
	require.Equal(t, []string{"yes"}, u["DynamicUser"])
	require.Equal(t, []string{"timerd"}, u["StateDirectory"])
	stop, err := strconv.Atoi(u["TimeoutStopSec"][0])
	require.NoError(t, err)
	f, err := parse(nil, noEnv, nil)
	require.NoError(t, err)
	// The server waits for the grace and 5 s, and then as long for the page.
	require.GreaterOrEqual(t, time.Duration(stop)*time.Second, f.config.Grace+10*time.Second)

	systemd := need.Program(t, "systemd", "systemd-analyze")
	path := filepath.Join(t.TempDir(), "timerd.service")
	self, err := os.Executable()
	require.NoError(t, err)
	text := strings.Replace(readFile(t, "deploy/timerd.service"), "ExecStart=/usr/local/bin/timerd\n", "ExecStart="+self+"\n", 1)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, args := range [][]string{
		{"verify", "--man=no", path},
		{"security", "--offline=true", "--threshold=20", "--no-pager", path}, // 2.0 of 10
	} {
		output, err := exec.Command(systemd, args...).CombinedOutput()
		require.NoError(t, err, "%s", output)
		if args[0] == "verify" {
			require.Empty(t, string(output)) // warnings do not change its status
		}
	}
}

// instruction returns the arguments of the only such instruction of a stage of the Containerfile.
func instruction(t *testing.T, stage, name string) string {
	found := regexp.MustCompile(`(?m)^`+name+` (.*)$`).FindAllStringSubmatch(stage, -1)
	require.Len(t, found, 1, name)
	return found[0][1]
}

func TestContainerfile(t *testing.T) {
	text := readFile(t, "deploy/Containerfile")
	stages := regexp.MustCompile(`(?m)^FROM `).Split(text, -1)
	require.Len(t, stages, 3)
	build, final := stages[1], stages[2]
	require.True(t, strings.HasPrefix(build, "${GO} AS build\n"))
	require.True(t, strings.HasPrefix(final, "scratch\n"))

	wants := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))
	require.Regexp(t, `(?m)^ARG GO=golang:`+regexp.QuoteMeta(wants[1])+`-\w+$`, text)

	require.Equal(t, `["/timerd"]`, instruction(t, final, "ENTRYPOINT"))
	require.Contains(t, instruction(t, final, "HEALTHCHECK"), `CMD ["/timerd", "-health"]`)
	user := instruction(t, final, "USER")
	require.Regexp(t, `^[1-9]\d+:[1-9]\d+$`, user, "a number, which orchestrators can see not to be root's")
	require.Contains(t, final, "--chown="+user+" ")
	f, err := parse([]string{"-health"}, containerEnv(t, final), nil)
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:7717", f.config.Listen)
	require.Equal(t, "7717", instruction(t, final, "EXPOSE"))
	require.True(t, strings.HasPrefix(f.config.Store, "pebble:"+instruction(t, final, "VOLUME")+"/"))
	// Other machines can reach it, so it needs a token.
	_, err = parse(nil, containerEnv(t, final), nil)
	require.ErrorContains(t, err, "unless -token-file or TIMERD_TOKEN gives a token")

	// The stages get all that they need: nothing that the build uses is left out of the context.
	for line := range strings.Lines(readFile(t, "deploy/Containerfile.dockerignore")) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			require.Contains(t, []string{".git", "**/*.db"}, line)
		}
	}
}

// containerEnv returns the environment that the container file sets.
func containerEnv(t *testing.T, stage string) func(string) string {
	fields := strings.Fields(instruction(t, stage, "ENV"))
	return func(name string) string {
		for _, f := range fields {
			if value, ok := strings.CutPrefix(f, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// The container file's build command makes a static binary, which runs without any file of the
// system. Where the packages have only been built with cgo it takes a minute, so it needs
// LIMBO_LONG=1.
func TestContainerBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the container is for Linux")
	}
	if cgo, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || os.Getenv("LIMBO_LONG") == "" && strings.TrimSpace(string(cgo)) == "1" {
		t.Skip("it builds everything once more: set LIMBO_LONG=1")
	}
	t.Parallel()
	build := regexp.MustCompile(`(?m)^RUN (.*go build .*)$`).FindStringSubmatch(readFile(t, "deploy/Containerfile"))
	require.NotNil(t, build)
	out := t.TempDir()
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(build[1], "/out/", out+"/"))
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "VERSION=v0.0.0-test", "COMMIT=c0ffee")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)

	path := filepath.Join(out, "timerd")
	binary, err := elf.Open(path)
	require.NoError(t, err)
	defer binary.Close()
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	for _, p := range binary.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a dynamic linker")
	}
	answer, err := exec.Command(path, "-version").CombinedOutput()
	require.NoError(t, err)
	require.Regexp(t, `^timerd v0\.0\.0-test, commit c0ffee, go\S+ linux/\w+, time zones .+\n$`, string(answer))

	addr, err := programs.Addr()
	require.NoError(t, err)
	env := []string{"TIMERD_LISTEN=" + addr, "TIMERD_STORE=pebble:" + filepath.Join(out, "timers")}
	serve := exec.Command(path)
	serve.Env = env
	launch(t, serve, func() error {
		health := exec.Command(path, "-health")
		health.Env = env
		return health.Run()
	})
}

// The commands in README.md, "Files for operators", work. timerd is the test binary, and a folder
// stands for the root directory.
func TestOperatorCommands(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("these are commands for Linux")
	}
	_, section, ok := strings.Cut(readFile(t, "README.md"), "\n## Files for operators\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var commands []string
	for line := range strings.Lines(section) {
		if text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    "); ok {
			if n := len(commands); n > 0 && strings.HasSuffix(commands[n-1], `\`) {
				commands[n-1] = strings.TrimSuffix(commands[n-1], `\`) + strings.TrimSpace(text)
				continue
			}
			text, _, _ = strings.Cut(text, "     ") // without the remark to its right
			commands = append(commands, text)
		}
	}
	require.Greater(t, len(commands), 8)

	root, bin := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "timerd"), fmt.Appendf(nil, "#!/bin/sh\nLIMBO_TIMERD_TEST=1 exec %s \"$@\"\n", self), 0o700)) //nolint:gosec // it is a program
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/systemd/system"), 0o700))
	addr := serveTimerd(t, noEnv)
	var ran, rules []string
	execute := func(command string) {
		cmd := exec.Command("sh", "-e", "-c", strings.ReplaceAll(command, " /etc/", " "+root+"/etc/"))
		cmd.Dir = "../.." // the root of the repository
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TIMERD_LISTEN="+addr)
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, output)
	}
	for _, command := range commands {
		switch name, _, _ := strings.Cut(command, " "); name {
		case "go", "systemctl", "podman": // change the machine, or take long
		case "promtool":
			rules = append(rules, command)
		default:
			ran = append(ran, name)
			execute(command)
		}
	}
	require.ElementsMatch(t, []string{"head", "head", "install", "timerd", "timerd"}, ran)
	require.Equal(t, readFile(t, "deploy/timerd.service"), readFile(t, filepath.Join(root, "etc/systemd/system/timerd.service")))

	// timerd accepts the files that they made as the unit passes them.
	u := unit(t)
	env := map[string]string{}
	for _, line := range u["Environment"] {
		for _, f := range strings.Fields(line) {
			name, value, _ := strings.Cut(f, "=")
			env[name] = strings.NewReplacer("%d/", root+"/etc/timerd/", "%S", "/var/lib").Replace(value)
		}
	}
	require.Len(t, env, 3)
	require.Equal(t, []string{"token:/etc/timerd/token", "secret:/etc/timerd/secret"}, u["LoadCredential"])
	f, err := parse(nil, func(name string) string { return env[name] }, nil)
	require.NoError(t, err)
	require.Len(t, f.config.Token, 44)
	require.Len(t, f.config.Secret, 44)
	require.Equal(t, "pebble:/var/lib/timerd/timers", f.config.Store)
	for _, secret := range []string{"token", "secret"} {
		info, err := os.Stat(filepath.Join(root, "etc/timerd", secret))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	require.Equal(t, []string{"-/etc/timerd/timerd.env"}, u["EnvironmentFile"])

	need.Program(t, "prometheus", "promtool")
	require.Len(t, rules, 2)
	for _, command := range rules {
		execute(command)
	}
}
