# Faults, clock and counters: does the device do what it was told, and does
# the truth log say so?

DELAY=20000000  # ns: above anything that happens by itself, mostly

# The profiler's question, asked of perftest: were the slow ones slow?
truth() {       # truth STAGE ARGS...: a case
	local stage=$1 rc
	shift
	restart SLOW_EVERY=100 SLOW_NS=$DELAY SLOW_STAGE="$stage"
	run_pair ib_read_lat -n 500 -U "$@"
	rc=$?
	./softmlx5 stop >/dev/null
	if [ $rc = 0 ]; then
		tests/check-truth.py "$SOFTMLX5_DIR/truth.csv" "$out" $DELAY >"$out.t" 2>&1
		rc=$?
		mv "$out.t" "$out"
	fi
	result "ground truth, delay at the $stage $*" $rc "$(head -n 1 "$out")"
}

# Select rows of the truth log with an awk condition, by column name; print
# those columns.
rows() {        # rows CONDITION COLUMN...
	local cond=$1
	shift
	awk -F, -v columns="$*" '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; n = split(columns, c, " "); next }
		'"$(sed -E 's/@([a-z_]+)/$at["\1"]/g' <<<"$cond")"' {
			for (i = 1; i <= n; i++) printf "%s%s", $at[c[i]], i < n ? " " : "\n"
		}' "$SOFTMLX5_DIR/truth.csv"
}

# Slow rows of a stage: all late enough, and the counters agree with them.
struck() {      # struck STAGE FLAG COUNTERS TOOL ARGS...: a case
	local stage=$1 flag=$2 counters=$3 slow short sum=0 c
	shift 3
	restart SLOW_EVERY=50 SLOW_NS=2000000 SLOW_STAGE="$stage"
	if ! run_pair "$@"; then
		result "SLOW_STAGE=$stage: $*" 1
		return
	fi
	./softmlx5 stop >/dev/null
	slow=$(rows '@kind == "S" && @flags ~ /S/ && @flags ~ /'"$flag"'/' wqe | wc -l)
	short=$(rows '@kind == "S" && @flags ~ /S/ && (@flags !~ /'"$flag"'/ || @t_cqe - @t_doorbell < 2000000)' wqe | wc -l)
	for c in $counters; do
		sum=$((sum + $(device_file "hw_counters/$c")))
	done
	echo "$slow slow, $short of them too early; $counters: $sum" >"$out"
	[ "$slow" -gt 0 ] && [ "$short" = 0 ] && [ "$sum" = "$slow" ]
	result "SLOW_STAGE=$stage: $*" $? "$(cat "$out")"
}

# Which of each ten requests are slow.
pattern() {     # pattern EXPECTED PARAMETERS...: a case
	local expected=$1 got rc
	shift
	restart SLOW_EVERY=10 SLOW_NS=100000 "$@"
	run_pair ib_read_lat -n 200
	rc=$?
	./softmlx5 stop >/dev/null
	got=$(rows '@kind == "S"' flags | awk '/S/ { print (NR - 1) % 10 }' | sort -u | xargs)
	[ $rc = 0 ] && [ "$got" = "$expected" ]
	rc=$?
	[ $rc = 0 ] || echo "slow of each ten: '$got', expected '$expected'" >>"$out"
	result "slow of each ten, ${*:-by default}: ${expected:-none}" $rc
}

error() {
	restart ERR_EVERY=300
	run_pair ib_read_lat -n 500
	grep -q "Failed status 12" "$out"
	result "injected error is a RETRY_EXC completion" $?
}

# Timestamps against the clock the parameters describe; goes on for so many ns
# after the start.
read_clock() {  # read_clock NS PARAMETERS...
	local ns=$1 start
	shift
	restart "$@"
	start=$(sed -n 's/^START_NS=//p' "$SOFTMLX5_DIR/state")
	./softmlx5 run build/tests/stamps 300 $((start + ns)) >"$out.stamps" 2>"$out" || return 1
	./softmlx5 stop >/dev/null
	tests/check-clock.py "$SOFTMLX5_DIR" "$out.stamps" >"$out" 2>&1
}

clock() {       # clock PARAMETERS...: a case
	read_clock 0 "$@"
	result "device clock ${*:-by default}" $? "$(cat "$out")"
}

# A machine that needs longer than that to the first request gets more time.
clock_step() {  # clock_step NS: a case
	local at rc
	for at in 500000000 4000000000 32000000000; do
		read_clock $((at + 100000000)) CLOCK_STEP_AT_NS=$at CLOCK_STEP_NS="$1"
		rc=$?
		[ $rc = 3 ] || break
	done
	result "device clock steps by $1 ns" $rc "$(cat "$out")"
}

port_data() { [ "$(device_file counters/port_xmit_data)" = "$1" ]; }

# Port counters against the log, right after the traffic.
counters() {    # counters TOOL ARGS...: a case
	local bytes rc
	restart
	run_pair "$@"
	rc=$?
	./softmlx5 set LAT_NS=2000      # has the log flushed
	bytes=$(rows '@kind == "S" && @flags !~ /E/' bytes | awk '{ n += $1 } END { print n + 0 }')
	[ $rc = 0 ] && [ "$bytes" -gt 0 ] && eventually port_data $((bytes / 4)) &&
		[ "$(device_file counters/port_rcv_data)" = $((bytes / 4)) ] &&
		[ "$(device_file counters/port_xmit_packets)" -gt 0 ]
	result "port counters tell the bytes of $*" $? "$bytes bytes"
}
