# Sourced by scripts in the guest.
# rdma_wire: the guest's two virtio NICs (eth0, eth1: joined by a QEMU hub) get rxe0 and
# rxe1, so that all that goes between them crosses both virtio devices and their interrupts:
#  - GID 0, IPv6 link-local: such a destination is looked up per device, so it crosses the
#    wire with no more ado.
#  - GID 1, IPv4: policy routing, else the kernel would deliver it by loopback.
# eth2 and eth3, joined by another hub, are for what is no RDMA.
rdma_wire() {
	modprobe -a virtio_net rdma_rxe ib_uverbs
	sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
	wire eth0 10.77.0.1 eth1 10.77.0.2 10
	wire eth2 10.78.0.1 eth3 10.78.0.2 20
	ip rule add pref 100 lookup local
	ip rule del pref 0
	rdma link add rxe0 type rxe netdev eth0
	rdma link add rxe1 type rxe netdev eth1
}

# wire NIC ADDRESS NIC ADDRESS NUMBER: what goes between the addresses crosses the NICs,
# by rules and tables from NUMBER on.
wire() {
	one_end "$1" "$2" "$3" "$4" "$5"
	one_end "$3" "$4" "$1" "$2" "$(($5 + 1))"
}

one_end() {	# one_end NIC ADDRESS PEER ITS_ADDRESS NUMBER
	sysctl -qw "net.ipv6.conf.$1.accept_dad=0" "net.ipv4.conf.$1.accept_local=1" \
		"net.ipv4.conf.$1.rp_filter=0" "net.ipv4.conf.$1.arp_ignore=1"
	ip link set "$1" mtu "${MTU:-1500}" up
	ip addr add "$2/32" dev "$1"
	ip route add "$4" dev "$1" src "$2" table "1$5"
	ip neigh replace "$4" dev "$1" lladdr "$(cat "/sys/class/net/$3/address")" nud permanent
	ip rule add pref "$5" iif "$1" lookup local	# what came in by a NIC is ours
	ip rule add pref "$(($5 + 4))" from "$2" to "$4" lookup "1$5"	# what goes out takes the wire
	ip rule add pref "$(($5 + 6))" oif "$1" to "$4" lookup "1$5"
}

# wait_port PORT: until somebody listens there.
wait_port() { until ss -Hltn "sport = :$1" | grep -q .; do sleep 0.05; done; }

# pair TOOL ARGS...: server on rxe0, client on rxe1, the exit status of both; the client's
# output on stdout.  GID is chosen by the caller's arguments (-g 0 or -x 0).
pair() {
	local tool=$1 server rc
	shift
	timeout "${PAIR_TIMEOUT:-90}" "$tool" -d rxe0 "$@" >/tmp/server.out 2>&1 &
	server=$!
	wait_port 18515
	timeout "${PAIR_TIMEOUT:-90}" "$tool" -d rxe1 "$@" 127.0.0.1
	rc=$?
	wait $server || rc=1
	return $rc
}
