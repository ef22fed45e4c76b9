#!/usr/bin/env bash
# Uses the core as another module does, from outside the workspace:
#
#	bash .ci/outside.sh go1.25.14    # with this toolchain
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
toolchain=$1

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export GOWORK=off GOTOOLCHAIN=$toolchain

mkdir "$dir/app"
cat >"$dir/app/go.mod" <<EOF
module example.com/app

go 1.25.0

require github.com/seed-782fa212/limbo v0.0.0

replace github.com/seed-782fa212/limbo => $root
EOF
cat >"$dir/app/main.go" <<'EOF'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	due := make(chan string)
	wheel, err := timingwheel.New(func(s string) { due <- s }, timingwheel.Options{})
	if err != nil {
		return err
	}
	if _, err := wheel.Schedule("due", time.Millisecond); err != nil {
		return err
	}
	fmt.Println(<-due)
	if _, err := wheel.Shutdown(context.Background(), timingwheel.Discard); err != nil {
		return err
	}
	p, err := purgatory.New[string](purgatory.Options{})
	if err != nil {
		return err
	}
	fmt.Println(delayqueue.New[int]().Len())
	return p.Shutdown(context.Background())
}
EOF
cd "$dir/app"
go mod tidy
go vet ./...
go build -o "$dir/run" .
"$dir/run" >"$dir/out"
printf 'due\n0\n' | cmp - "$dir/out"

# The module graph of whoever uses limbo: limbo, testify for its tests, and what
# testify itself needs. Nothing of the examples, the checks or the benchmark.
go list -m all | tee "$dir/modules"
if grep -vE '^(example\.com/app|github\.com/seed-782fa212/limbo|github\.com/stretchr/(testify|objx)|go\.yaml\.in/yaml/v3)( |$)' "$dir/modules"; then
	echo "FAIL: the core brings these modules to whoever uses it" >&2
	exit 1
fi
# What such a program links: the standard library and limbo.
if go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' . | grep -v -e '^example\.com/app$' -e '^github\.com/seed-782fa212/limbo/'; then
	echo "FAIL: the core links these packages" >&2
	exit 1
fi
