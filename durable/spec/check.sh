#!/usr/bin/env bash
# Checks the models timer.pml and plan.pml: all states of the unchanged models; and for each
# break, until the named assertion fails. Prints a line for each check, and fails if one fails.
#
#	bash durable/spec/check.sh                  # everything
#	bash durable/spec/check.sh TOKEN_IGNORED    # this break only, with the steps to it
#	bash durable/spec/check.sh failover         # this space only
#
# It needs spin and a C compiler (Debian: spin, gcc). It uses tcc too if that is installed, and then
# takes a third of the time. It runs one check on each processor, and each needs up to 300 MiB of
# memory. With LIMBO_LONG=1 it also searches five larger spaces, one of which needs 1 GiB.
set -euo pipefail
cd "$(dirname "$0")"
only=${1-}
models=$PWD
cc=${CC:-cc}
# gcc compiles a verifier in 0.8 s without optimizing and in 1.5 s with -Og, tcc in 0.04 s. tcc's
# verifiers are half as fast as those of -Og, so only the largest spaces need gcc.
quick=tcc
command -v tcc >/dev/null || quick="$cc -O0"
for tool in spin "$cc"; do
	command -v "$tool" >/dev/null || { echo "FAIL: $tool is not installed (Debian: spin, gcc)" >&2; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# build NAME MODEL "FLAGS OF THE MODEL" "COMPILER" FLAGS OF THE COMPILER…: compiles the verifier
# NAME/pan.
build() {
	local name=$1 model=$2 flags=$3 compiler=$4
	shift 4
	mkdir "$name"
	cd "$name"
	# shellcheck disable=SC2086 # flags are several
	spin -a $flags "$models/$model.pml" >spin.out 2>&1 || { cat spin.out >&2; exit 1; }
	# shellcheck disable=SC2086
	$compiler -w -DNOREDUCE -DMEMLIM=2048 "$@" -o pan pan.c
	cd ..
}

# failed NAME REASON: fails this check, with the output of its search.
failed() {
	printf '%s\nFAIL: %s\n' "$(cat "$1.out")" "$2" >&2
	exit 1
}

# holds NAME MODEL "FLAGS OF THE MODEL" [-Og|-O2]: no assertion fails in any state. A search of more
# than 1,000,000 states is worth the time that gcc takes with -Og, one of more than 2,000,000 that
# with -O2.
holds() {
	local name=$1
	build "$name" "$2" "$3 -DWITNESS" "${4:+$cc }${4-$quick}" -DSAFETY -DNOFAIR
	"$name/pan" -m200000 -w21 >"$name.out" 2>&1 || true
	complete "$name" holds
}

# complete NAME WORD: the search visited all states and found no error.
complete() {
	local name=$1
	if ! grep -q 'errors: 0' "$name.out" || grep -qE 'Search not completed|search depth too small' "$name.out"; then
		failed "$name" "$name"
	fi
	printf '%-20s %s: %.0f states, %s s\n' "$name" "$2" \
		"$(awk '/states, stored/ { print $1 }' "$name.out")" "$(awk '/elapsed time/ { print $4 }' "$name.out")"
}

# proceeds NAME MODEL "FLAGS OF THE MODEL" [-O2]: no weakly fair run stays in stuck states forever.
proceeds() {
	build "$1" "$2" "$3 -DPROGRESS" "${4:+$cc }${4-$quick}" -DNFAIR=3
	"$1/pan" -a -f -m1000000 -w21 >"$1.out" 2>&1 || true
	complete "$1" proceeds
}

# stops BREAK MODEL "FLAGS OF THE MODEL": the broken model has such a run.
stops() {
	local name=$1 model=$2 flags="-D$1 -DPROGRESS $3"
	build "$name" "$model" "$flags" "$quick" -DNFAIR=3
	(cd "$name" && ./pan -a -f -m1000000 -w18) >"$name.out" 2>&1 || true
	grep -q 'acceptance cycle (' "$name.out" || failed "$name" "$name does not stop"
	printf '%-20s stops\n' "$name"
	trail "$name" "$model" "$flags"
}

# fails BREAK MODEL ASSERTION ["FLAGS OF THE MODEL"]: the broken model fails on this assertion. The
# search is breadth-first, which finds the fewest steps.
fails() {
	local name=$1 model=$2 law=$3 flags="-D$1 ${4-}"
	build "$name" "$model" "$flags" "$quick" -DSAFETY -DNOFAIR -DBFS
	(cd "$name" && ./pan -w18) >"$name.out" 2>&1 || true
	grep -q "assertion violated (*$law||" "$name.out" || failed "$name" "$name does not violate $law"
	printf '%-20s violates %s in step %d\n' "$name" "$law" "$(($(sed -nE 's/.*\(at depth ([0-9]+)\).*/\1/p' "$name.out") + 1))"
	trail "$name" "$model" "$flags"
}

# trail NAME MODEL "FLAGS OF THE MODEL": prints the steps to an error, if this is the only check.
trail() {
	if [ -n "$only" ]; then
		# shellcheck disable=SC2086
		spin -t -T $3 -k "$(ls "$1"/*.trail)" "$models/$2.pml" | sed -nE 's/^ *((engine|replica|worker [01]|client|owner|clock): )/  \1/p'
	fi
}

# met NUMBER SITUATION: at least one searched state space has this situation.
met() {
	if ! grep -qx "met $1" ./*.out; then
		echo "FAIL: in no state: $2" >&2
		exit 1
	fi
}

# checks: prints the checks, the longest first.
checks() {
	if [ -n "${LIMBO_LONG-}" ]; then
		cat <<-'END'
			holds late-long timer "-DREORDERED -DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=2" -O2
			holds calls-long timer "-DFAILOVERS=0 -DSCHEDULES=4 -DLEASES=5" -O2
			holds failover-long timer "-DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=3" -O2
			holds leases-long timer "-DFAILOVERS=1 -DSCHEDULES=2 -DLEASES=4" -O2
			proceeds plan-progress-long plan "-DFAULTS=1 -DCALLS=2" -O2
		END
	fi
	cat <<-'END'
		holds plan-calls plan "-DFAULTS=1 -DCALLS=3" -Og
		holds plan-faults plan "-DFAULTS=2 -DCALLS=2"
		holds failover timer "-DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=2"
		holds late-failover timer "-DREORDERED -DFAILOVERS=1 -DSCHEDULES=3 -DLEASES=1"
		holds late timer "-DREORDERED -DFAILOVERS=0 -DSCHEDULES=3 -DLEASES=2"
		holds calls timer "-DFAILOVERS=0 -DSCHEDULES=3 -DLEASES=4"
		proceeds plan-progress plan "-DFAULTS=1 -DCALLS=1"
		fails SUCCESSOR_BESIDE timer D1
		fails SUCCESSOR_CANCELLED timer D8
		fails SUCCESSOR_DROPPED timer D8
		fails SCHEDULE_TWICE timer D8
		fails SCHEDULE_OVERTAKEN timer LATE
		fails CLOCK_RESTARTED timer D8
		fails TOKEN_IGNORED timer D5
		fails FENCE_IGNORED timer D5
		fails FENCE_KEPT timer D5
		fails EXTEND_REVIVES timer D4
		fails CANCELLED_RETRIED timer D4
		fails CANCEL_REMOVES timer D4
		fails CANCEL_SURE timer D4
		fails LATE_BY_KIND timer LATE "-DSCHEDULES=3"
		fails LATE_BY_FLOOR timer LATE "-DSCHEDULES=3"
		fails LATE_FOR_OTHERS timer LATE
		fails CLAIM_FORGOTTEN timer D9
		fails CLAIM_OUTLIVES timer D4
		fails WAS_IGNORED plan S2 "-DFAULTS=1"
		fails ENTRIES_BEFORE plan S2 "-DFAULTS=1"
		fails ENTRIES_AFTER plan S2 "-DFAULTS=1"
		fails WAKE_UNSEEN plan S4 "-DFAULTS=1"
		fails SEEN_LATE plan S4 "-DFAULTS=1"
		fails UPDATE_SEES plan S4 "-DFAULTS=1"
		fails DELETE_BLIND plan S8 "-DFAULTS=1"
		fails CREATE_OUTLIVES plan S8 "-DFAULTS=1"
		stops LEASE_KEPT plan "-DFAULTS=1 -DCALLS=1"
	END
}

chosen=$(checks)
if [ -n "$only" ]; then
	chosen=$(grep -E "^[a-z]+ $only " <<<"$chosen") || { echo "FAIL: there is no check $only" >&2; exit 1; }
fi
export only models cc quick
export -f build complete failed fails holds proceeds stops trail
# xargs fails if a check fails, after all checks have ended.
xargs -L 1 -P "$(getconf _NPROCESSORS_ONLN)" bash -euo pipefail -c '"$@"' check <<<"$chosen"
if [ -z "$only" ]; then
	met 2 "a Claim sent again gets the same lease"
	met 3 "a Claim sent again gets nothing"
	met 4 "a Claim sent again after a fail-over gets another lease"
	met 5 "two handlers run, one of them without its lease"
	met 6 "a fence twice, told apart by the token"
	met 7 "a change that was not carried out must not take effect from now on"
	met 8 "an End for a lease that is not there"
	met 9 "a Cancel sent again finds nothing, because the first was carried out"
	met 10 "a lease of a cancelled timer with a successor expires"
	met 11 "a lease of a cancelled timer without one expires"
	met 12 "a lease of a timer with a successor expires"
	met 13 "a lease of the last attempt expires"
	met 14 "a dead letter waits again"
	met 15 "a change after a later one, because its call had not returned"
	met 21 "a plan is due at once, because an occurrence ended between its reading and its swap"
	met 22 "a swap of a plan that was removed"
	met 23 "a swap of a plan that was swapped since it was read"
	met 24 "a plan is claimed again, because its lease expired"
	met 25 "a buffered occurrence is created"
	met 26 "a delete loses to another swap, and is prepared again"
	met 27 "the end of an occurrence wakes its plan"
	met 28 "an occurrence ends while its plan is leased"
fi
