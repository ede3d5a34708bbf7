# What the test cases share.  A case calls result once with its outcome.
pass=0 fail=0 skipped=0
work=$(mktemp -d /tmp/softmlx5-test.XXXXXX) || exit 1
out=$work/out
export SOFTMLX5_DIR=$work/dev
PORT=${PORT:-$((20000 + $$ % 10000))}

finish() {
	for d in "$work"/*/; do
		SOFTMLX5_DIR=$d ./softmlx5 stop >/dev/null 2>&1
	done
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

result() {      # result NAME STATUS [FIGURE]; $out is shown when it failed
	if [ "$2" = 0 ]; then
		pass=$((pass + 1))
		echo "PASS  $1${3:+  $3}"
	else
		fail=$((fail + 1))
		echo "FAIL  $1"
		tail -n 15 "$out" | sed 's/^/      /'
	fi
}

skip() {        # skip NAME REASON
	if [ "$REQUIRE_ALL" = 1 ]; then
		fail=$((fail + 1))
		echo "FAIL  $1: $2 (REQUIRE_ALL)"
	else
		skipped=$((skipped + 1))
		echo "SKIP  $1: $2"
	fi
}

summary() {
	local tail=
	[ $skipped = 0 ] || tail=", $skipped skipped"
	echo "$pass passed, $fail failed$tail"
	[ $fail = 0 ]
}

have() {        # have NAME PROGRAM...: or the case is skipped
	local name=$1 p
	shift
	for p in "$@"; do
		command -v "$p" >/dev/null || { skip "$name" "$p is not installed"; return 1; }
	done
}

restart() {     # restart [KEY=VALUE...]
	./softmlx5 stop >/dev/null 2>&1
	./softmlx5 start "$@" || { echo "cannot start the device" >&2; exit 1; }
}

device_file() { # device_file NAME: a file of the port in sysfs
	cat "$SOFTMLX5_DIR/sys/class/infiniband/mlx5_0/ports/1/$1"
}

# Wait until a condition holds; false when it does not within a time that
# only something broken takes.
eventually() {  # eventually COMMAND...
	local i
	for ((i = 0; i < 3000; i++)); do
		"$@" && return 0
		sleep 0.02
	done
	return 1
}

run_pair() {    # run_pair TOOL ARGS...: to $out
	PAIR_TIMEOUT=300 ./softmlx5 pair "$@" -p "$PORT" >"$out" 2>&1
}

# The last line of figures that a perftest or pingpong printed.
figure() {
	grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+|usec/iter|Average|Final' "$out" | tail -n 1 |
		tr -s ' \t' ' '
}

pair() {        # pair TOOL ARGS...: a case
	have "$*" "$1" || return
	run_pair "$@"
	result "$*" $? "$(figure)"
}
