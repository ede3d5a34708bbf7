# Sourced by scripts in the guest.
# rdma_wire: the guest's two virtio NICs (eth0, eth1: joined by a QEMU hub) get rxe0 and
# rxe1, so that all that goes between them crosses both virtio devices and their interrupts:
#  - GID 0, IPv6 link-local: such a destination is looked up per device, so it crosses the
#    wire with no more ado.
#  - GID 1, IPv4: policy routing, else the kernel would deliver it by loopback.
A=10.77.0.1 B=10.77.0.2
rdma_wire() {
	local d i=0
	modprobe -a virtio_net rdma_rxe ib_uverbs
	sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
	for d in eth0 eth1; do
		i=$((i + 1))
		sysctl -qw net.ipv6.conf.$d.accept_dad=0 net.ipv4.conf.$d.accept_local=1 \
			net.ipv4.conf.$d.rp_filter=0 net.ipv4.conf.$d.arp_ignore=1
		ip link set $d mtu "${MTU:-1500}" up
		ip addr add 10.77.0.$i/32 dev $d
	done
	ip route add $B dev eth0 src $A table 101
	ip route add $A dev eth1 src $B table 102
	ip neigh replace $B dev eth0 lladdr "$(cat /sys/class/net/eth1/address)" nud permanent
	ip neigh replace $A dev eth1 lladdr "$(cat /sys/class/net/eth0/address)" nud permanent
	ip rule add pref 10 iif eth0 lookup local	# what came in by a NIC is ours
	ip rule add pref 11 iif eth1 lookup local
	ip rule add pref 20 from $A to $B lookup 101	# what goes out takes the wire
	ip rule add pref 21 from $B to $A lookup 102
	ip rule add pref 22 oif eth0 to $B lookup 101
	ip rule add pref 23 oif eth1 to $A lookup 102
	ip rule add pref 100 lookup local
	ip rule del pref 0
	rdma link add rxe0 type rxe netdev eth0
	rdma link add rxe1 type rxe netdev eth1
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
