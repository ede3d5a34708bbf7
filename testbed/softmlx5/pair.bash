# softmlx5 pair TOOL ARGS...: TOOL ARGS as server, then TOOL ARGS 127.0.0.1 as
# client.  The client starts when the server listens on a TCP socket, its
# output is passed on, and the status is 0 when both succeed.  Environment:
#   SRV_CPU, CLI_CPU  CPUs of the two (default: the last and the first)
#   PAIR_TIMEOUT      seconds each may take (default 60)
#   PAIR_WRAP         a command that wraps both; 'chrt -f 1' shields short runs
#                     from other load
#   CLIENT            a command that wraps the client only
#   PAIR_PIDS         a file that gets "server PID" and "client PID", the
#                     processes of the tool itself, as soon as both run
#   PAIR_DELAY        for a server that does not listen on TCP: start the
#                     client after so many seconds

# perftest gives up when it cannot calibrate the time stamp counter on a busy
# machine.  That says nothing about the device, so the run is repeated.
PAIR_TRIES=5
CALIBRATION="Correlation coefficient"

# The pid of the tool that exec-tool became, once it did: "" before.
tool_pid() {    # tool_pid FILE
	local pid comm
	read -r pid 2>/dev/null <"$1" || return
	read -r comm 2>/dev/null <"/proc/$pid/comm" || { echo "$pid"; return; }
	[ "$comm" = exec-tool ] || echo "$pid"
}

# Does a process, or a child of it, have a listening TCP socket?
listens() {     # listens PID
	local children links inode
	children=$(cat /proc/"$1"/task/*/children 2>/dev/null)
	links=$(for p in $1 $children; do readlink /proc/"$p"/fd/* 2>/dev/null; done)
	for inode in $(awk '$4 == "0A" { print $10 }' /proc/"$1"/net/tcp /proc/"$1"/net/tcp6 \
			2>/dev/null); do
		case $links in *"socket:[$inode]"*) return 0 ;; esac
	done
	return 1
}

wait_listening() {      # false when the server ended instead
	local pid
	until pid=$(tool_pid "$tmp/server.pid"); [ -n "$pid" ] && listens "$pid"; do
		kill -0 $srv 2>/dev/null || return 1
		sleep 0.02
	done
}

# One attempt; the status is that of the pair.  Uses tmp, srv, cli of pair().
attempt() {
	local list limit=${PAIR_TIMEOUT:-60} rc src
	list=$(cpus)
	rm -f "$tmp"/*
	timeout -k 2 "$limit" $PAIR_WRAP taskset -c "${SRV_CPU:-${list##*[,-]}}" \
		"$here/exec-tool" "$tmp/server.pid" "$@" >"$tmp/server" 2>&1 &
	srv=$!
	if [ -n "$PAIR_DELAY" ]; then
		sleep "$PAIR_DELAY"
	elif ! wait_listening; then
		wait $srv
		failed "the server ended ($?) before it listened; it said:"
		return 1
	fi
	timeout -k 2 "$limit" $CLIENT $PAIR_WRAP taskset -c "${CLI_CPU:-${list%%[,-]*}}" \
		"$here/exec-tool" "$tmp/client.pid" "$@" 127.0.0.1 2>"$tmp/client.err" &
	cli=$!
	[ -z "$PAIR_PIDS" ] || write_pids
	wait $cli
	rc=$?
	cat "$tmp/client.err" >&2
	wait $srv
	src=$?
	cli='' srv=''
	[ $rc = 0 ] && [ $src = 0 ] && return 0
	failed "client $rc, server $src (124: it took over $limit s); the server said:"
	return 1
}

# Nothing is said of a failure that is not the last word.
failed() {      # failed MESSAGE
	grep -qs "$CALIBRATION" "$tmp/server" "$tmp/client.err" && calibration=1
	[ -n "$calibration" ] && [ $try -lt $PAIR_TRIES ] && return
	echo "FAILED: $1" >&2
	tail -n 20 "$tmp/server" >&2
}

write_pids() {
	local pid
	until pid=$(tool_pid "$tmp/client.pid"); [ -n "$pid" ]; do
		kill -0 $cli 2>/dev/null || return
		sleep 0.02
	done
	printf 'server %s\nclient %s\n' "$(tool_pid "$tmp/server.pid")" "$pid" >"$PAIR_PIDS.new"
	mv "$PAIR_PIDS.new" "$PAIR_PIDS"
}

cleanup() {
	[ -z "$cli$srv" ] || kill $cli $srv 2>/dev/null
	rm -rf "$tmp"
}

pair() {
	local try calibration srv cli tmp
	tmp=$(mktemp -d) || die 1 "no temporary directory"
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	[ -z "$PAIR_PIDS" ] || rm -f "$PAIR_PIDS"
	for ((try = 1; try <= PAIR_TRIES; try++)); do
		calibration=
		attempt "$@" && return 0
		[ -n "$calibration" ] || return 1
		[ $try = $PAIR_TRIES ] ||
			echo "softmlx5: perftest could not calibrate its clock on this busy machine," \
				"trying again" >&2
	done
	return 1
}
