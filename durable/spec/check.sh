#!/usr/bin/env bash
# Checks the models timer.pml and plan.pml: as they are, all of their states; broken in one
# place, until the named assertion fails. Prints a line for each, and fails if one of them
# is not so.
#
#	bash durable/spec/check.sh                  # everything
#	bash durable/spec/check.sh TOKEN_IGNORED    # this break only, with the steps to it
#
# It needs spin and a C compiler (Debian: spin, gcc), and at most 2 GiB of memory.
# With LIMBO_LONG=1 it searches three larger spaces as well.
set -euo pipefail
cd "$(dirname "$0")"
model=$PWD/timer.pml
cc=${CC:-cc}
for tool in spin "$cc"; do
	command -v "$tool" >/dev/null || { echo "FAIL: $tool is not installed (Debian: spin, gcc)" >&2; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# build NAME "FLAGS OF THE MODEL" FLAGS OF PAN…: compiles the verifier NAME/pan.
build() {
	local name=$1 flags=$2
	shift 2
	mkdir "$name"
	cd "$name"
	# shellcheck disable=SC2086 # flags are several
	spin -a $flags "$model" >spin.out 2>&1 || { cat spin.out >&2; exit 1; }
	"$cc" -w -DNOREDUCE -DMEMLIM=2048 "$@" -o pan pan.c
	cd ..
}

# holds NAME "FLAGS OF THE MODEL": no assertion fails in any state.
holds() {
	local name=$1
	build "$name" "$2 -DWITNESS" -O2 -DSAFETY -DNOFAIR
	"$name/pan" -m200000 -w23 >"$name.out" 2>&1 || true
	complete "$name" holds
}

# complete NAME WORD: a search has visited all states, and found no error.
complete() {
	local name=$1
	if ! grep -q 'errors: 0' "$name.out" || grep -qE 'Search not completed|search depth too small' "$name.out"; then
		cat "$name.out" >&2
		echo "FAIL: $name" >&2
		exit 1
	fi
	printf '%-20s %s: %.0f states, %s s\n' "$name" "$2" \
		"$(awk '/states, stored/ { print $1 }' "$name.out")" "$(awk '/elapsed time/ { print $4 }' "$name.out")"
}

# proceeds NAME "FLAGS OF THE MODEL": no run in which each process that can go on does so stays for ever
# in states that are stuck.
proceeds() {
	build "$1" "$2 -DPROGRESS" -O2 -DNFAIR=3
	"$1/pan" -a -f -m1000000 -w23 >"$1.out" 2>&1 || true
	complete "$1" proceeds
}

# stops BREAK "FLAGS OF THE MODEL": the broken model has such a run.
stops() {
	local name=$1 flags="-D$1 -DPROGRESS $2"
	[ -z "$only" ] || [ "$only" = "$name" ] || return 0
	build "$name" "$flags" -O0 -DNFAIR=3
	(cd "$name" && ./pan -a -f -m1000000 -w22) >"$name.out" 2>&1 || true
	if ! grep -q 'acceptance cycle (' "$name.out"; then
		cat "$name.out" >&2
		echo "FAIL: $name does not stop" >&2
		exit 1
	fi
	printf '%-20s stops\n' "$name"
	trail "$name" "$flags"
}

# trail NAME "FLAGS OF THE MODEL": the steps to an error, if only that is asked for.
trail() {
	if [ -n "$only" ]; then
		# shellcheck disable=SC2086
		spin -t -T $2 -k "$(ls ./*/*.trail)" "$model" | sed -nE 's/^ *((engine|replica|worker [01]|client|owner|clock): )/  \1/p'
	fi
}

# met NUMBER SITUATION: some state space that was searched has it.
met() {
	if ! grep -qx "met $1" ./*.out; then
		echo "FAIL: in no state: $2" >&2
		exit 1
	fi
}

# fails BREAK ASSERTION ["FLAGS OF THE MODEL"]: the broken model fails on this assertion. The search is by
# breadth, so that the steps to it are as few as can be.
fails() {
	local name=$1 law=$2 flags="-D$1 ${3-}"
	[ -z "$only" ] || [ "$only" = "$name" ] || return 0
	build "$name" "$flags" -O0 -DSAFETY -DNOFAIR -DBFS
	(cd "$name" && ./pan -w22) >"$name.out" 2>&1 || true
	if ! grep -q "assertion violated (*$law||" "$name.out"; then
		cat "$name.out" >&2
		echo "FAIL: $name does not violate $law" >&2
		exit 1
	fi
	printf '%-20s violates %s in step %d\n' "$name" "$law" "$(($(sed -nE 's/.*\(at depth ([0-9]+)\).*/\1/p' "$name.out") + 1))"
	trail "$name" "$flags"
}

only=${1-}
if [ -z "$only" ]; then
	# The larger space keeps one processor busy, the rest another.
	holds failover "-DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=3" &
	holds calls "-DFAILOVERS=0 -DSCHEDULES=3 -DLEASES=4"
	holds late "-DREORDERED -DFAILOVERS=0 -DSCHEDULES=3 -DLEASES=2"
	holds late-failover "-DREORDERED -DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=1"
	if [ -n "${LIMBO_LONG-}" ]; then
		holds calls-long "-DFAILOVERS=0 -DSCHEDULES=4 -DLEASES=5"
		holds failover-long "-DFAILOVERS=1 -DSCHEDULES=2 -DLEASES=4"
		holds late-long "-DREORDERED -DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=2"
	fi
fi
fails SUCCESSOR_BESIDE D1
fails SUCCESSOR_CANCELLED D8
fails SUCCESSOR_DROPPED D8
fails SCHEDULE_TWICE D8
fails SCHEDULE_OVERTAKEN LATE
fails CLOCK_RESTARTED D8
fails TOKEN_IGNORED D5
fails FENCE_IGNORED D5
fails FENCE_KEPT D5
fails EXTEND_REVIVES D4
fails CANCELLED_RETRIED D4
fails CANCEL_REMOVES D4
fails CANCEL_SURE D4
fails LATE_BY_KIND LATE "-DSCHEDULES=3"
fails LATE_BY_FLOOR LATE "-DSCHEDULES=3"
fails LATE_FOR_OTHERS LATE
fails CLAIM_FORGOTTEN D9
fails CLAIM_OUTLIVES D4
model=${model%timer.pml}plan.pml
if [ -z "$only" ]; then
	holds plan-calls "-DFAULTS=1 -DCALLS=3"
	holds plan-faults "-DFAULTS=2 -DCALLS=2"
	proceeds plan-progress "-DFAULTS=1 -DCALLS=2"
fi
for name in WAS_IGNORED ENTRIES_BEFORE ENTRIES_AFTER; do
	fails "$name" S2 "-DFAULTS=1"
done
for name in WAKE_UNSEEN SEEN_LATE UPDATE_SEES; do
	fails "$name" S4 "-DFAULTS=1"
done
fails DELETE_BLIND S8 "-DFAULTS=1"
fails CREATE_OUTLIVES S8 "-DFAULTS=1"
stops LEASE_KEPT "-DFAULTS=1 -DCALLS=1"
if [ -z "$only" ]; then
	wait $!
	met 2 "a Claim sent again gets the same lease"
	met 3 "a Claim sent again gets nothing"
	met 4 "a Claim sent again after a fail-over gets another lease"
	met 5 "two handlers run, one of them without its lease"
	met 6 "a fence twice, told apart by the token"
	met 7 "a change that was not carried out comes too late from now on"
	met 8 "End of what has no such lease"
	met 9 "a Cancel sent again finds nothing, because the first was carried out"
	met 10 "a lease of a cancelled timer with a successor runs out"
	met 11 "a lease of a cancelled timer without one runs out"
	met 12 "a lease of a timer with a successor runs out"
	met 13 "a lease of the last attempt runs out"
	met 14 "a dead letter waits again"
	met 15 "a change after a later one, because its call had not returned"
	met 21 "a plan is due at once, because an occurrence ended between its reading and its swap"
	met 22 "a swap of a plan that was removed"
	met 23 "a swap of a plan that was swapped since it was read"
	met 24 "a plan is claimed again, because a lease ran out"
	met 25 "what was buffered is created"
	met 26 "a delete loses to another swap, and is prepared again"
	met 27 "the end of an occurrence wakes its plan"
	met 28 "an occurrence ends while its plan is leased"
fi
