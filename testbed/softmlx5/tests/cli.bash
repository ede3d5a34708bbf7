# The command line: every error is one line, with the right status, and
# changes nothing.

refuses() {     # refuses STATUS WORDS COMMAND...: a case
	local status=$1 words=$2 rc ok=1
	shift 2
	"$@" >"$out" 2>&1 </dev/null
	rc=$?
	[ $rc = "$status" ] && [ "$(wc -l <"$out")" = 1 ] && grep -q "$words" "$out" && ok=0
	[ $ok = 0 ] || echo "status $rc, expected $status and one line with: $words" >>"$out"
	result "refused: ${*#./}" $ok
}

bad_parameters() {
	refuses 2 "no such parameter" ./softmlx5 "$1" LAT_NSS=5
	refuses 2 "KEY=VALUE" ./softmlx5 "$1" LAT_NS
	refuses 2 "whole number" ./softmlx5 "$1" LAT_NS=5us
	refuses 2 "whole number" ./softmlx5 "$1" SLOW_NS=
	refuses 2 "expected 0 to" ./softmlx5 "$1" ACK_NS=-1
	refuses 2 "sleep, spin" ./softmlx5 "$1" POLL=busy
	refuses 2 "wire, cqe" ./softmlx5 "$1" SLOW_NS=5 SLOW_STAGE=wires
	refuses 2 "uniform:NS" ./softmlx5 "$1" JITTER=uniform
	refuses 2 "opcode" ./softmlx5 "$1" SLOW_OP=RDMA_READ
}

cli_stopped() {
	bad_parameters start
	[ ! -e "$SOFTMLX5_DIR/params" ]
	result "a refused start leaves nothing behind" $?
	refuses 2 "this machine has" ./softmlx5 start CPU=4000
	refuses 1 "cannot write to" env SOFTMLX5_DIR=/proc/softmlx5 ./softmlx5 start
	refuses 1 "cannot write to" env SOFTMLX5_DIR="$PWD/Makefile" ./softmlx5 start
	refuses 1 "File name too long" env SOFTMLX5_DIR="$work/$(printf 'x%.0s' {1..120})" \
		./softmlx5 start
	refuses 1 "no device is running" ./softmlx5 run true
	refuses 1 "no device is running" ./softmlx5 pair ib_read_lat
	refuses 1 "no device is running" ./softmlx5 set LAT_NS=5
	refuses 1 "no device is running" ./softmlx5 stop
	mkdir -p "$work/unbuilt"
	cp softmlx5 "$work/unbuilt"
	refuses 1 "not built yet" "$work/unbuilt/softmlx5" start
	./softmlx5 start LAT_NS=1000 >"$out" 2>&1 && kill -9 "$(cat "$SOFTMLX5_DIR/pid")"
	./softmlx5 start LAT_NS=3000 >"$out" 2>&1 &&
		[ "$(wc -l <"$out")" = 1 ] && grep -q "is gone without" "$out" &&
		./softmlx5 status | grep -qx LAT_NS=3000
	result "start after a crash says so and starts" $?
}

# A lock or a pipe of whoever starts the device must not live on in it.
cli_inherits_nothing() {
	local rc lock
	./softmlx5 stop >/dev/null 2>&1
	exec {lock}>"$work/lock"
	flock $lock
	./softmlx5 start
	exec {lock}>&-
	flock --nonblock "$work/lock" true >"$out" 2>&1
	rc=$?
	ls -l "/proc/$(cat "$SOFTMLX5_DIR/pid")/fd" >>"$out"
	result "the daemon keeps nothing open that it inherits" $rc
}

cli_running() {
	local before
	before=$(./softmlx5 status)
	bad_parameters set
	refuses 2 "at the start only" ./softmlx5 set LAT_NS=7 LINK=eth
	[ "$before" = "$(./softmlx5 status)" ]
	result "a refused set changes nothing" $?
	refuses 1 "already running" ./softmlx5 start
	./softmlx5 set LAT_NS=4321 JITTER=exp:77 && ./softmlx5 status >"$out" &&
		grep -qx LAT_NS=4321 "$out" && grep -qx JITTER=exp:77 "$out" &&
		./softmlx5 set LAT_NS=2000 JITTER=none
	result "set changes the running device" $?
	cut -d= -f1 <<<"$before" | grep -v '^running\|^START_NS' | while read -r key; do
		grep -q "^| \`$key\`" README.md || echo "$key is not in README.md's table"
	done >"$out"
	[ ! -s "$out" ]
	result "README.md documents every parameter" $?
	./softmlx5 >"$out" 2>&1
	[ $? = 2 ] && grep -q "softmlx5 start" "$out"
	result "without a command: usage" $?
}

gone() { ! kill -0 "$1" 2>/dev/null; }

counters_grow() {
	local now
	now=$(device_file counters/port_xmit_data)
	[ "$now" -gt "${grown:=$now}" ]
}

# A pair at work: its processes are told, its traffic shows in the counters,
# and ending it ends them.
cli_pair() {
	local pids=$work/pids pair server client
	PAIR_PIDS=$pids PAIR_TIMEOUT=600 ./softmlx5 pair ib_send_bw -n 100000000 -p "$PORT" \
		>"$out" 2>&1 &
	pair=$!
	eventually [ -s "$pids" ]
	result "PAIR_PIDS is written while the pair runs" $?
	server=$(awk '$1 == "server" { print $2 }' "$pids")
	client=$(awk '$1 == "client" { print $2 }' "$pids")
	[ "$(cat /proc/"$server"/comm /proc/"$client"/comm)" = $'ib_send_bw\nib_send_bw' ] &&
		grep -q 127.0.0.1 "/proc/$client/cmdline" &&
		! grep -q 127.0.0.1 "/proc/$server/cmdline"
	result "and names the tools themselves" $?
	grown=
	eventually counters_grow
	result "the port counters grow while traffic runs" $?
	kill $pair
	wait $pair
	eventually gone "$server" && eventually gone "$client"
	result "a pair that is ended leaves no process behind" $?
	refuses 1 "FAILED: the server ended" ./softmlx5 pair false
}

# A tool whose client fails as perftest does on a busy machine, so many times.
flaky_tool() {  # flaky_tool TIMES
	rm -f "$work/tries"
	cat >"$work/flaky" <<-END
		#!/bin/bash
		[ "\$*" = 127.0.0.1 ] || exit 0
		echo >>"$work/tries"
		[ "\$(wc -l <"$work/tries")" -gt $1 ] && exit 0
		echo "Correlation coefficient r^2: 0.5 < 0.9" >&2
		exit 1
	END
	chmod +x "$work/flaky"
}

cli_calibration() {
	local rc
	flaky_tool 2
	PAIR_DELAY=0 ./softmlx5 pair "$work/flaky" >"$out" 2>&1 &&
		[ "$(wc -l <"$work/tries")" = 3 ] && ! grep -q FAILED "$out"
	result "pair repeats a run that could not calibrate" $?
	flaky_tool 99
	PAIR_DELAY=0 ./softmlx5 pair "$work/flaky" >"$out" 2>&1
	rc=$?
	[ $rc = 1 ] && [ "$(wc -l <"$work/tries")" = 5 ] && [ "$(grep -c FAILED "$out")" = 1 ]
	result "but not for ever" $?
	PAIR_TIMEOUT=1 ./softmlx5 pair sleep 30 >"$out" 2>&1
	[ $? = 1 ] && grep -q "FAILED: the server ended (124)" "$out"
	result "a server that never listens ends at PAIR_TIMEOUT" $?
}

# Two devices at once know nothing of each other.
cli_two_devices() {
	local other=$work/dev2 rc a b
	SOFTMLX5_DIR=$other ./softmlx5 start LAT_NS=9000 >"$out" 2>&1
	restart LAT_NS=1000
	SOFTMLX5_DIR=$other PAIR_TIMEOUT=300 ./softmlx5 pair ib_write_lat -n 300 \
		-p $((PORT + 1)) >"$out.2" 2>&1 &
	run_pair ib_read_lat -n 200
	rc=$?
	wait $! || { rc=1; cat "$out.2" >>"$out"; }
	SOFTMLX5_DIR=$other ./softmlx5 stop >/dev/null
	./softmlx5 stop >/dev/null
	a=$(grep '^S,' "$SOFTMLX5_DIR/truth.csv" | cut -d, -f6 | sort | uniq -c | xargs)
	b=$(grep '^S,' "$other/truth.csv" | cut -d, -f6 | sort | uniq -c | xargs)
	[ $rc = 0 ] && [ "$a" = "200 READ" ] && [ "$b" = "600 WRITE" ]
	result "two devices at once" $? "$a; $b"
	./softmlx5 start
}
