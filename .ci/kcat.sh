#!/usr/bin/env bash
# Drives examples/broker with kcat, and so with librdkafka: a client that shares no code with
# this repository. Each check prints a line; the first failed check ends the script.
set -euo pipefail

cd "$(dirname "$0")/.."
messages=${MESSAGES:-20000}

bash .ci/packages.sh kcat

dir=$(mktemp -d)
broker=""
members=()
rounds=()
cleanup() {
	for process in "$broker" "${members[@]}" "${rounds[@]}"; do
		if [ -n "$process" ]; then kill -KILL "$process" 2>/dev/null || true; fi
	done
	rm -rf "$dir"
}
trap cleanup EXIT

fail() {
	echo "FAIL: $*" >&2
	echo "--- broker:" >&2
	cat "$dir/out" "$dir/err" >&2 || true
	exit 1
}

go build ${GOBUILDFLAGS:-} -o "$dir/broker" ./examples/broker
# Port 0: the kernel picks a free port, and the broker prints it.
"$dir/broker" -serve -addr 127.0.0.1:0 -partitions 3 >"$dir/out" 2>"$dir/err" </dev/null &
broker=$!
addr=""
for _ in $(seq 100); do
	addr=$(sed -n 's/^broker: listening on //p' "$dir/out")
	if [ -n "$addr" ]; then break; fi
	kill -0 "$broker" 2>/dev/null || fail "broker did not start"
	sleep 0.1
done
[ -n "$addr" ] || fail "broker does not say where it listens"

# The features of this kcat: librdkafka rejects the setting of a codec that it lacks.
features=$(kcat -V | sed -n 's/.*builtin.features=\([^)]*\)).*/\1/p')
echo "kcat: $(kcat -V | sed -n 's/.*\(librdkafka [^ ]*\).*/\1/p'), features: $features"

seq "$messages" >"$dir/want"

# round <name> <kcat producer options>: produces numbered messages to a topic of
# that name, consumes them and compares.
round() {
	local name=$1 err=$dir/$1.err got=$dir/$1.got
	shift
	timeout 60 kcat -b "$addr" -P -t "$name" -p 0 "$@" <"$dir/want" 2>"$err" ||
		fail "$name: produce: $(cat "$err")"
	# If librdkafka cannot do as told, it does not fail: it logs and sends uncompressed.
	if grep -qiE 'not compressing|unsupported|disabl' "$err"; then
		fail "$name: kcat did not do as told: $(cat "$err")"
	fi
	timeout 60 kcat -b "$addr" -C -t "$name" -p 0 -o beginning -e -q >"$got" 2>"$err" ||
		fail "$name: consume: $(cat "$err")"
	cmp "$dir/want" "$got" || fail "$name: consumed something else than was produced"
	echo "ok: $name: $messages messages out and back${*:+, $*}"
}

# The rounds mostly wait, so they run in parallel with each other and with the group
# below.
begin_round() {
	(trap - EXIT && round "$@") &
	rounds+=($!)
}

begin_round plain
begin_round idempotent -X enable.idempotence=true
for codec in gzip snappy lz4 zstd; do
	case ",$features," in
	*",$codec,"*) ;;
	*) fail "THIS KCAT HAS NO $codec: the check of that compression cannot run" ;;
	esac
	begin_round "$codec" -z "$codec"
	begin_round "$codec-idempotent" -z "$codec" -X enable.idempotence=true
done

# A group of three: each reads one of the three partitions. One is killed without a chance
# to leave; another member reads its partition after its session has expired.
session=2 # seconds
for p in 0 1 2; do
	echo "first $p" | timeout 30 kcat -b "$addr" -P -t grouped -p "$p" || fail "group: produce"
done
for i in 0 1 2; do
	kcat -b "$addr" -G tested -X session.timeout.ms=${session}000 -X heartbeat.interval.ms=500 \
		-X auto.offset.reset=earliest -X enable.auto.commit=true -X auto.commit.interval.ms=100 \
		-X topic.metadata.refresh.interval.ms=1000 -u -q -f '%p %s\n' grouped >"$dir/member$i" 2>"$dir/member$i.err" &
	members+=($!)
done
# Produces the next number to each partition, which shows the member that reads it now.
number=0
produce_next() {
	number=$((number + 1))
	for p in 0 1 2; do
		echo "number $number" | timeout 30 kcat -b "$addr" -P -t grouped -p "$p" || fail "group: produce"
	done
}
readers() { # the members that have this number of partition $1
	for i in 0 1 2; do
		if grep -q "^$1 number $number\$" "$dir/member$i"; then echo "$i"; fi
	done
}
separate=""
for _ in $(seq 300); do
	produce_next
	sleep 0.2
	read -r a b c < <(echo "$(readers 0)" "$(readers 1)" "$(readers 2)")
	if [ -n "$c" ] && [ "$a" != "$b" ] && [ "$b" != "$c" ] && [ "$a" != "$c" ]; then
		separate=yes
		break
	fi
done
[ -n "$separate" ] || fail "group: three members do not share three partitions: $(tail -n 3 "$dir"/member?)"
echo "ok: three members of a group read a partition each"
victim=$(readers 0)
kill -KILL "${members[$victim]}" || fail "group: nothing to kill"
killed=$(date +%s%N)
wait "${members[$victim]}" 2>/dev/null || true
produce_next
successor=""
for _ in $(seq 600); do
	for i in 0 1 2; do
		if [ "$i" != "$victim" ] && grep -q "^0 number $number\$" "$dir/member$i"; then successor=$i; fi
	done
	if [ -n "$successor" ]; then break; fi
	sleep 0.1
done
after=$(((($(date +%s%N)) - killed) / 1000000))
[ -n "$successor" ] || fail "group: nobody reads the killed member's partition: $(tail -n 3 "$dir"/member?)"
# A test in virtual time checks that the partition is not reassigned earlier. Here the
# member's last heartbeat may be as old as the time for which its process was not
# scheduled.
echo "ok: a member killed with SIGKILL is replaced after $after ms, its session being ${session} s"
for i in 0 1 2; do
	if [ "$i" != "$victim" ]; then
		kill -TERM "${members[$i]}" || true
	fi
	wait "${members[$i]}" 2>/dev/null || true
done
members=()

for process in "${rounds[@]}"; do
	wait "$process" || exit 1 # it has printed the reason
done
rounds=()

timeout 30 kcat -b "$addr" -L >"$dir/list" || fail "kcat -L"
for topic in plain idempotent gzip snappy lz4 zstd; do
	grep -q "topic \"$topic\" with 3 partitions" "$dir/list" || fail "kcat -L does not list $topic: $(cat "$dir/list")"
done
echo "ok: -L lists the broker and $(grep -c '^ *topic ' "$dir/list") topics"

# Offsets by time: the first message is not older than 1 ms after 1970.
offset=$(timeout 30 kcat -b "$addr" -Q -t plain:0:1) || fail "kcat -Q"
[ "$offset" = "plain [0] offset 0" ] || fail "kcat -Q says $offset"
echo "ok: -Q finds an offset by time"

# A consumer that waits at the end must learn of the shutdown, not hang.
timeout 30 kcat -b "$addr" -C -t plain -p 0 -o end -q >/dev/null 2>&1 &
waiting=$!
sleep 1
kill -TERM "$broker"
status=0
wait "$broker" || status=$?
broker=""
kill "$waiting" 2>/dev/null || true
wait "$waiting" 2>/dev/null || true
[ "$status" -eq 0 ] || fail "broker ended with status $status"
grep -q '^broker: stopped' "$dir/out" || fail "broker did not say that it stopped"
for codec in gzip snappy lz4 zstd; do
	n=$(sed -n "s/^broker: batches .*$codec=\([0-9]*\).*/\1/p" "$dir/out")
	[ "${n:-0}" -gt 0 ] || fail "no batch arrived compressed with $codec: $(cat "$dir/out")"
done
echo "ok: every codec arrived as such: $(sed -n 's/^broker: batches //p' "$dir/out")"
echo "ok: SIGTERM ended the broker with status 0"
echo "kcat: all checks passed"
