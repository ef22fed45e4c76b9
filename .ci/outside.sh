#!/usr/bin/env bash
# Rehearses a release: uses each published module as it would be tagged, from a module outside
# of the workspace and with a module cache that begins empty, and compares its dependencies with
# a budget:
#
#	bash .ci/outside.sh go1.25.14 go1.26.0
#
# The arguments are toolchains, the oldest first. checks/release makes a module proxy in a
# folder, from the working tree, and checks each module as unpacked from its zip. Each row below
# gets its modules from that proxy. It uses the oldest toolchain that the go.mod files allow,
# and prints how many third-party packages its program links, from how many modules, and how
# many third-party modules are in its module graph. A row fails if docs/licences.md does not
# list a module that it links.
set -euo pipefail
cd "$(dirname "$0")/.."
limbo=$(GOWORK=off go list -m)
licences=$PWD/docs/licences.md
toolchains=("$@")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

go run ./checks/release -rehearse "$dir" "${toolchains[@]}"
cd "$dir"
programs=() # the go commands of the toolchains
for toolchain in "${toolchains[@]}"; do
	programs+=("$(GOWORK=off GOTOOLCHAIN=$toolchain go env GOROOT)/bin/go")
done
sumdb=$(go env GOMODCACHE)/cache/download/sumdb
source "$dir/env" # VERSION, and the outsider's environment
# Only answers of the checksum database are shared with this machine's cache: the go command
# verifies each when it reads it.
mkdir -p "$sumdb"
ln -s "$sumdb" "$GOMODCACHE/cache/download/sumdb"
export GOTOOLCHAIN=local

# testify and its dependencies, which limbo's own tests add to each module graph.
testify='github\.com/(stretchr/(testify|objx)|davecgh/go-spew|pmezard/go-difflib)|go\.yaml\.in/yaml/v3|gopkg\.in/(yaml\.v3|check\.v1)'
# Test tools, which no module graph may contain.
tools='github\.com/(chromedp|anishathalye|netresearch)/'

fail() {
	echo "FAIL: $1" >&2
	exit 1
}

# oldest NAME COMMAND… runs a go command with the first of the toolchains with which it
# succeeds. It leaves its output in the file out.
oldest() {
	local name=$1 i
	shift
	for i in "${!programs[@]}"; do
		toolchain=${toolchains[i]}
		program=${programs[i]}
		! "$program" "$@" >"$dir/out" 2>&1 || return 0
	done
	fail "$name: go $*, with ${toolchains[*]}: $(cat "$dir/out")"
}

# row NAME MODULES LINKED GRAPH gets the modules (paths below the core's; "." is the core),
# and builds, vets and runs the program on standard input, which prints ok. It may link LINKED
# third-party modules. GRAPH is "linked" if the rest of its module graph may only be testify,
# or "any" if only test tools are forbidden.
row() {
	local name=$1 modules=$2 most=$3 graph=$4 module toolchain program versions=()
	rm -rf "$dir/app"
	mkdir "$dir/app"
	cd "$dir/app"
	sed "s#LIMBO#$limbo#" >main.go
	"${programs[0]}" mod init example.com/app 2>/dev/null
	"${programs[0]}" mod edit -go=1.25.0
	for module in $modules; do
		module=/$module
		versions+=("$limbo${module%/.}@$VERSION")
	done
	oldest "$name" get "${versions[@]}"
	"$program" vet .
	"$program" build -o "$dir/run" .
	[ "$("$dir/run")" = ok ] || fail "$name: the program does not print ok"

	"$program" list -deps -f '{{if not .Standard}}{{.Module.Path}}{{end}}' . | { grep -vE "^($limbo(/|\$)|example\.com/)" || true; } >"$dir/packages"
	sort -u "$dir/packages" >"$dir/linked"
	"$program" list -m -f '{{.Path}}' all | { grep -vE "^($limbo(/|\$)|example\.com/|($testify)\$)" || true; } | sort >"$dir/graph"
	printf '%-32s %-10s %8d %8d %8d\n' "$name" "$toolchain" "$(wc -l <"$dir/packages")" "$(wc -l <"$dir/linked")" "$(wc -l <"$dir/graph")"
	[ "$(wc -l <"$dir/linked")" -le "$most" ] || fail "$name links more than $most modules: $(tr '\n' ' ' <"$dir/linked")"
	while read -r module; do
		grep -qF "| $module |" "$licences" || fail "$name links $module, which docs/licences.md does not list"
	done <"$dir/linked"
	! grep -E "$tools" "$dir/graph" || fail "$name has these test tools in its module graph"
	[ "$graph" = any ] || [ -z "$(comm -13 "$dir/linked" "$dir/graph")" ] ||
		fail "$name has in its module graph: $(comm -13 "$dir/linked" "$dir/graph" | tr '\n' ' ')"
}

printf '%-32s %-10s %8s %8s %8s\n' importing with packages modules graph

row 'the core' . 0 linked <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	"LIMBO/calls"
	"LIMBO/delayqueue"
	"LIMBO/longpoll"
	"LIMBO/purgatory"
	"LIMBO/timingwheel"
	"LIMBO/timingwheel/keyed"
	"LIMBO/timingwheel/scheduler"
)

var (
	_ = calls.New[int, int]
	_ = delayqueue.New[int]
	_ = longpoll.New
	_ = keyed.New[int, int]
	_ = purgatory.New[string]
	_ = scheduler.New
)

func main() {
	due := make(chan string)
	wheel, err := timingwheel.New(func(s string) { due <- s }, timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := wheel.Schedule("ok", time.Millisecond); err != nil {
		panic(err)
	}
	fmt.Println(<-due)
	if _, err := wheel.Shutdown(context.Background(), timingwheel.Discard); err != nil {
		panic(err)
	}
}
GO

# timers IMPORT OPEN is a program that runs one timer, with the engine that OPEN opens.
timers() {
	cat <<GO
package main

import (
	"context"
	"fmt"
	"os"

	"LIMBO/durable"
	_ "LIMBO/durable/webhook"
	$1
)

func main() {
	defer os.RemoveAll("timers")
	engine, err := $2
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if _, err := timers.Schedule(ctx, durable.Timer{Key: "ok"}); err != nil {
		panic(err)
	}
	worker, err := timers.NewWorker(func(_ context.Context, f durable.Fired) error {
		fmt.Println(f.Key)
		stop()
		return nil
	}, durable.WorkerOptions{})
	if err != nil {
		panic(err)
	}
	if err := worker.Run(ctx); err != nil {
		panic(err)
	}
}
GO
}

timers '"LIMBO/durable/memstore"' 'memstore.New(memstore.Options{})' | row durable durable 0 linked
timers '"LIMBO/durable/pebblestore"' 'pebblestore.Open("timers", pebblestore.Options{})' | row 'durable on Pebble' 'durable durable/pebblestore' 40 any

row 'durable on Redis' 'durable durable/redisstore' 4 any <<'GO'
package main

import (
	"fmt"

	"LIMBO/durable"
	"LIMBO/durable/redisstore"
)

var (
	_ = durable.New
	_ = redisstore.Open // which needs a server
)

func main() {
	client, err := redisstore.NewClient("redis://127.0.0.1:6379")
	if err != nil {
		panic(err)
	}
	if err := client.Close(); err != nil {
		panic(err)
	}
	fmt.Println("ok")
}
GO

row observe '. observe' 12 any <<'GO'
package main

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"LIMBO/delayqueue"
	"LIMBO/observe"
)

func main() {
	r := observe.New()
	if _, err := r.Add("mail", observe.Queue(delayqueue.New[int]())); err != nil {
		panic(err)
	}
	reply := httptest.NewRecorder()
	observe.NewServer(r).Handler.ServeHTTP(reply, httptest.NewRequest("GET", "http://localhost/metrics", nil))
	if strings.Contains(reply.Body.String(), `limbo_queue_elements{name="mail"} 0`) {
		fmt.Println("ok")
	}
}
GO

row "timerd's client" durable/timerd 0 any <<'GO'
package main

import (
	"fmt"

	"LIMBO/durable/timerd/client"
)

func main() {
	if _, err := client.New("http://127.0.0.1:8080", client.Options{}); err != nil {
		panic(err)
	}
	fmt.Println("ok")
}
GO

# timerd is a program: nobody writes a module for it.
cd "$dir"
oldest timerd run "$limbo/durable/timerd@$VERSION" -help
grep -q '^timerd keeps durable timers' "$dir/out" || fail "timerd -help prints: $(cat "$dir/out")"
printf '%-32s %-10s\n' 'timerd, which runs' "$toolchain"
