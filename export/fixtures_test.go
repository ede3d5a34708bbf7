package export

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// fixtures by the name of their goldens, and the endings of those that they have
// beside the text.
var fixtures = []struct {
	name, others string
	make         func() *attribution.Report
}{
	{"polling", "json pprof folded svg", sync.OnceValue(pollingJob)},
	{"eventmode", "json pprof folded svg", sync.OnceValue(eventModeJob)},
	{"training", "folded svg", sync.OnceValue(trainingJob)},
	{"bypass", "json svg", bypassJob},
	{"nothing-open", "json", nothingOpen},
	{"idle", "", idleJob},
	{"receives-only", "", receivesOnly},
	{"received", "json", receivingJob},
	{"unsignalled-only", "", unsignalledOnly},
	{"excluded-only", "", excludedOnly},
	{"hostile", "json pprof folded svg", hostile},
	{"huge", "json folded", huge},
}

const (
	second = 1_000_000_000
	origin = 7_345_000_000_000 // CLOCK_MONOTONIC at the start of the windows
)

// testContext is what a run on one node with a 200 Gb/s device looks like.
func testContext(pid uint32, comm string, cmdline ...string) *event.Context {
	exe := "/usr/bin/" + comm
	return &event.Context{
		Tool:    "0.1.0",
		Host:    event.Host{Name: "node17", Kernel: "6.12.41", Arch: "x86_64", Distribution: "Debian 13", CPUs: 64, RealtimeOffset: 1_786_190_400_000_000_000},
		Window:  event.Window{Begin: origin, End: origin + 10*second},
		Targets: []event.Target{{PID: pid, Comm: comm, Exe: exe, Cmdline: cmdline, Rank: -1}},
		Devices: []event.Device{{Name: "mlx5_0", Driver: "mlx5_core", Firmware: "20.39.3004", PCI: "0000:17:00.0", NUMANode: 0,
			PCIeBPS: 252_000_000_000, Ports: []event.Port{{Number: 1, LinkLayer: "InfiniBand", State: "4: ACTIVE", RateBPS: 200_000_000_000, LID: 3}}}},
		Mappings: []event.Mapping{
			{PID: pid, Start: 0x7f10_0000_0000, End: 0x7f10_0004_0000, Offset: 0x8000, Path: "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0", BuildID: "5d9f1c0f6bb5b1f00dfa1cc2a1a5c7d8c4e3f2a1"},
			{PID: pid, Start: 0x5555_5555_4000, End: 0x5555_5559_0000, Offset: 0x1000, Path: exe, BuildID: "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"},
		},
		Counters: []event.Counter{{Name: "ring buffer full"}, {Name: "list truncated"}, {Name: "user memory unreadable"}},
		Probes: []event.Probe{
			{Name: "post_send", Kind: "uprobe", Library: "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0", Offset: 0x2f1a0, Source: "ops table, live context", Hits: 4000},
			{Name: "post_send", Kind: "uretprobe", Library: "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0", Offset: 0x2f1a0, Source: "ops table, live context", Hits: 4000},
			{Name: "poll_cq", Kind: "uprobe", Library: "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0", Offset: 0x31b40, Source: "consumed-completion path", Hits: 4000},
			{Name: "sched_switch", Kind: "tp_btf", Hits: 4_100},
		},
		Cost: event.Cost{TrapNS: 152, PairNS: 420, InPost: 180, CPUTime: 212_000_000},
	}
}

// addStack of functions, innermost first, in the exe.
func addStack(c *event.Context, pid uint32, id uint64, truncated bool, functions ...string) uint64 {
	s := event.Stack{ID: id, PID: pid, Truncated: truncated}
	for i, f := range functions {
		name, inline := strings.CutPrefix(f, "inline ")
		addr := 0x5555_5555_4000 + id*0x1000 + uint64(i)*0x40
		s.Frames = append(s.Frames, event.Frame{Addr: addr, Offset: addr - 0x5555_5555_4000 + 0x1000, Func: name,
			Module: c.Targets[0].Exe, File: "src/" + name + ".c", Line: 100 + i, Inline: inline})
	}
	c.Stacks = append(c.Stacks, s)
	return id
}

// jitter is around ns, skewed to the right.
func jitter(rnd *rand.Rand, ns float64) uint64 {
	return uint64(ns * math.Exp(rnd.NormFloat64()*0.04))
}

// pollingJob is ib_write_lat with a hog on its CPU: wire at the median,
// preemption in the tail. `done` is from CQE timestamps.
func pollingJob() *attribution.Report {
	const pid = 4242
	c := testContext(pid, "ib_write_lat", "ib_write_lat", "-d", "mlx5_0", "-s", "65536", "-n", "100000", "node18")
	stack := addStack(c, pid, 1, false, "inline post_send_method", "run_iter_lat_write", "main", "__libc_start_main")
	c.Costs = []string{"process 4242: empty polls cost nothing in /usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0+0x1e880: completions are seen where it consumes them"}
	c.Notes = []string{"Empty polls are not observed on this build of libmlx5: poll_cq is probed at entry and return."}
	rnd := rand.New(rand.NewPCG(1, 2))
	b := &builder{}
	at := uint64(origin + 1_000_000)
	for i := range 4000 {
		wr := attribution.WR{PID: pid, QPNum: 0x105, Index: int64(i), Op: "WRITE", Bytes: 65536, Device: "mlx5_0", Peer: "lid 4 qp 0x9c",
			Transport: "RC", PostThread: "ib_write_lat/4242", ReapThread: "ib_write_lat/4242", PostBegin: at, DoneSource: attribution.DoneCQE,
			Demand: attribution.Waited, Stack: stack}
		parts := []part{{attribution.Submit, jitter(rnd, 240), ""}, {attribution.Probe, 180, ""},
			{attribution.WireUnsplit, jitter(rnd, 3600), ""}, {attribution.LatePoll, jitter(rnd, 45), ""}}
		switch {
		case i == 3377:
			parts = append(parts, part{attribution.Preempted, 3_982_400, "stress-ng (pid 312)"})
		case i%71 == 0:
			parts = append(parts, part{attribution.Preempted, jitter(rnd, 9000), "stress-ng (pid 312)"})
		case i%733 == 0:
			parts = append(parts, part{attribution.Preempted, jitter(rnd, 5000), "kworker/3:1 (pid 88)"})
		case i%97 == 0:
			parts = append(parts, part{attribution.IRQOnTop, jitter(rnd, 1900), "local timer"})
		}
		parts = append(parts, part{attribution.Reap, jitter(rnd, 110), ""})
		b.add(wr, parts...)
		at = b.wrs[i].wr.Reap + jitter(rnd, 900)
	}
	for i := range b.wrs {
		b.wrs[i].wr.DoneLow, b.wrs[i].wr.DoneHigh = 100, 140 // 40 ns of doubt
	}
	b.incident(3377, attribution.Preempted, 1, 3_982_400)
	b.incident(71*3, attribution.Preempted, 1, 9_100)
	b.incident(97, attribution.IRQOnTop, 1, 1_900)
	b.incident(71*4, attribution.Preempted, 1, 8_900)
	b.r.Exposed[attribution.Scheduling] = 6_600_000
	b.r.Exposed[attribution.Software] = 9_100_000
	b.r.Exposed[attribution.Interrupt] = 390_000
	b.r.Chains = attribution.Chains{Count: 4000, WRs: 4000, Bytes: 4000 * 65536}
	b.r.Slow = attribution.Slow{ThresholdNS: 12_510, Bursts: 12, PeriodNS: second, Pattern: "every 1.00 s"}
	b.r.WRs = attribution.Books{Posted: 4003, Completed: 4000, Outstanding: 1, Excluded: 2, Bytes: 4000 * 65536}
	b.r.Kinds = map[string]attribution.Books{"send": b.r.WRs}
	b.r.Queues = []attribution.Queue{{PID: pid, QPNum: 0x105, Device: "mlx5_0", Peer: "lid 4 qp 0x9c", QueueSize: 128,
		Backlog: attribution.Backlog{Posted: 4003, DepthMax: 0, DepthKnown: 4003,
			IdleNS: 1_790_000_000, WindowNS: 10 * second, IdleRunning: 1_700_000_000, IdleRunnable: 60_000_000, IdleUnknown: 30_000_000,
			BytesPerSec: 26_214_400, WRsPerSec: 400}}}
	b.r.Ports = []attribution.PortReport{{Device: "mlx5_0", Port: 1, RateBPS: 200_000_000_000, TracedBPS: 209_715_200,
		TracedSent: 262_144_000, PortSent: 264_480_000, PortRecv: 2_400_000, Backlog: b.r.Queues[0].Backlog}}
	r := inCgroup(b.report(c), "stress-ng (pid 312)", attribution.Cgroup{Name: "/batch.slice/nightly.service", Apart: true})
	r.Late = pollingLate(r)
	return inCgroup(r, "kworker/3:1 (pid 88)", attribution.Cgroup{Name: "/"})
}

// eventModeJob sleeps on a completion channel beside a hog, on soft-RoCE:
// `done` is the interrupt's entry or a bracket.
func eventModeJob() *attribution.Report {
	const pid = 733
	c := testContext(pid, "ibv_rc_pingpong", "ibv_rc_pingpong", "-e", "-g", "1", "-n", "5000", "10.0.1.2")
	c.Host.CPUs, c.Host.Name = 2, "vm-a"
	c.Devices = []event.Device{{Name: "rxe0", Driver: "rdma_rxe", NUMANode: -1, Software: true,
		Ports: []event.Port{{Number: 1, LinkLayer: "Ethernet", State: "4: ACTIVE", RateBPS: 2_500_000_000}}}}
	stack := addStack(c, pid, 1, true, "pp_post_send", "main")
	rnd := rand.New(rand.NewPCG(3, 4))
	b := &builder{}
	at := uint64(origin + 1_000_000)
	for i := range 5000 {
		wr := attribution.WR{PID: pid, QPNum: 0x11, Index: int64(i), Op: "SEND", Bytes: 4096, Device: "rxe0", Peer: "10.0.1.2 qp 0x11",
			Transport: "RC", PostThread: "ibv_rc_pingpong/733", ReapThread: "ibv_rc_pingpong/733", PostBegin: at,
			DoneSource: attribution.DoneInterrupt, Demand: attribution.Waited, Stack: stack}
		parts := []part{{attribution.Submit, jitter(rnd, 2400), ""}, {attribution.Probe, 260, ""}, {attribution.WireUnsplit, jitter(rnd, 21_000), ""}}
		if i%9 == 0 {
			wr.DoneSource = attribution.DoneBracket
			wr.DoneLow, wr.DoneHigh = at+3000, at+15_000
			parts = append(parts, part{attribution.CauseUndecided, jitter(rnd, 12_000), ""})
		} else {
			parts = append(parts, part{attribution.Delivery, jitter(rnd, 1500), ""}, part{attribution.Handler, jitter(rnd, 4100), "virtio3-input.0 (irq 27)"},
				part{attribution.Handler, jitter(rnd, 6100), "NET_RX softirq"})
		}
		if i%4 == 0 {
			parts = append(parts, part{attribution.Runqueue, jitter(rnd, 190_000) + uint64(i%40)*100_000, "stress-ng (pid 990)"})
		} else {
			parts = append(parts, part{attribution.Runqueue, jitter(rnd, 3300), ""})
		}
		parts = append(parts, part{attribution.OwnSleep, uint64(i%50/49) * jitter(rnd, 52_000), "read"}, part{attribution.Reap, jitter(rnd, 900), ""})
		b.add(wr, parts...)
		at = b.wrs[i].wr.Reap + jitter(rnd, 40_000)
	}
	b.incident(36, attribution.Runqueue, 3, 11_400_000)
	b.incident(49, attribution.OwnSleep, 1, 52_000)
	b.r.Exposed[attribution.Scheduling] = 480_000_000
	b.r.Exposed[attribution.Interrupt] = 55_000_000
	send := attribution.Books{Posted: 5000, Completed: 5000, Bytes: 5000 * 4096}
	receive := attribution.Books{Posted: 5500, Completed: 5000, Outstanding: 500, Bytes: 5000 * 4096}
	b.r.Kinds = map[string]attribution.Books{"send": send, "receive": receive}
	b.r.WRs = attribution.Books{Posted: 10_500, Completed: 10_000, Outstanding: 500, Bytes: 10_000 * 4096}
	b.r.Queues = []attribution.Queue{{PID: pid, QPNum: 0x11, Device: "rxe0", Peer: "10.0.1.2 qp 0x11", QueueSize: 1,
		Backlog: attribution.Backlog{Posted: 5000, DepthMax: 1, DepthKnown: 5000,
			IdleNS: 6_200_000_000, WindowNS: 10 * second, IdleRunning: 1_100_000_000, IdleRunnable: 300_000_000, IdleAsleep: 4_800_000_000,
			IdleSyscalls: []attribution.Culprit{{Name: "read", TotalNS: 4_700_000_000, Count: 5000}, {Name: "futex", TotalNS: 100_000_000, Count: 12}},
			BytesPerSec:  2_048_000, WRsPerSec: 500}}}
	b.r.Ports = []attribution.PortReport{{Device: "rxe0", Port: 1, RateBPS: 2_500_000_000, TracedBPS: 16_384_000, TracedSent: 20_480_000,
		TracedRecv: 20_480_000, PortSent: -1, PortRecv: -1, Backlog: b.r.Queues[0].Backlog}}
	var waits []int64
	for range 5000 {
		waits = append(waits, int64(jitter(rnd, 310_000)))
	}
	b.r.Receive = []attribution.PeerWait{{Device: "rxe0", Peer: "10.0.1.2 qp 0x11", QPNum: 0x11, Wait: distribution(waits)}}
	b.r.Receives = receiveTotals(rnd)
	b.r.Doubts = []string{"The port has no hardware counters: bytes of other processes on it are not known."}
	r := b.report(c)
	r.Late = eventModeLate(r)
	return r
}

// receiveTotals of 5000 receives that software and scheduling delayed.
func receiveTotals(rnd *rand.Rand) (t attribution.Totals) {
	b := &builder{}
	for i := range 5000 {
		b.add(attribution.WR{Op: "RECV", PostBegin: origin}, part{attribution.LatePoll, jitter(rnd, 700), ""},
			part{attribution.Runqueue, uint64(i%3) * jitter(rnd, 2100), "stress-ng (pid 990)"})
	}
	t.Latency, t.Classes = distributions(b.wrs)
	t.AtP50, t.AtP99, t.Causes = split(b.wrs, 0.45, 0.55), split(b.wrs, 0.985, 0.995), causeTotals(b.wrs)
	return t
}

// trainingJob has many queue pairs, sizes and sites, mostly unsignalled, and
// `done` from brackets only; it is idle most of the time.
func trainingJob() *attribution.Report {
	const pid = 9001
	c := testContext(pid, "python3", "python3", "train.py", "--model", "gpt2-medium", "--batch", "32", "--bucket-cap-mb", "25", "--epochs", "3", "--data", "/mnt/data/openwebtext")
	c.Targets[0].Rank = 3
	c.Devices = append(c.Devices, event.Device{Name: "mlx5_1", Driver: "mlx5_core", Firmware: "20.39.3004", NUMANode: 1, PCIeBPS: 252_000_000_000,
		Ports: []event.Port{{Number: 1, LinkLayer: "InfiniBand", State: "4: ACTIVE", RateBPS: 200_000_000_000}}})
	c.Counters[0].Value, c.Probes[0].Misses = 12, 3
	c.Probes = append(c.Probes, event.Probe{Name: "irq_handler_entry", Kind: "tp_btf", Error: "no BTF for irqaction"})
	stacks := []uint64{
		addStack(c, pid, 1, false, "uct_rc_verbs_ep_am_zcopy", "ucp_proto_progress_am_rndv", "ucp_worker_progress", "mca_pml_ucx_progress", "opal_progress",
			"MPI_Allreduce", "c10d::ProcessGroupMPI::runLoop()", "clone"),
		addStack(c, pid, 2, false, "uct_rc_verbs_ep_put_zcopy", "ucp_worker_progress", "opal_progress", "MPI_Allreduce", "c10d::ProcessGroupMPI::runLoop()", "clone"),
		addStack(c, pid, 3, true, "uct_rc_verbs_ep_get_zcopy"),
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	b := &builder{}
	ops := []string{"SEND", "WRITE", "READ"}
	sizes := []int64{64, 8192, 262_144, 1 << 20}
	at := uint64(origin + 1_000_000)
	for i := range 2400 {
		qp := i % 20
		size := sizes[(i/3)%4]
		wr := attribution.WR{PID: pid, QPNum: 0x200 + uint32(qp), Index: int64(i / 20), Op: ops[i%3], Bytes: size, Device: []string{"mlx5_0", "mlx5_1"}[qp%2],
			Peer: []string{"lid 4", "lid 5", "lid 6"}[qp%3], Transport: "RC", PostThread: "pt_mpi/9050", ReapThread: []string{"pt_mpi/9050", "python3/9001"}[i%2],
			PostBegin: at, DoneSource: attribution.DoneBracket, Demand: []attribution.Demand{attribution.Waited, attribution.Dependent, attribution.Unproven}[i%7%3], Stack: stacks[i%3]}
		floor := 4000 + float64(size)*8/180
		wr.DoneLow, wr.DoneHigh = at+1000, at+1000+uint64(floor*1.4)
		parts := []part{{attribution.Submit, jitter(rnd, 600), ""}, {attribution.Probe, 180, ""}, {attribution.SendQueue, uint64(qp%3) * jitter(rnd, 2000), ""},
			{attribution.Base, 3600, ""}, {attribution.Transmit, uint64(float64(size) * 8 / 190), ""},
			{attribution.CauseUndecided, jitter(rnd, floor*1.3), ""}, {attribution.Reap, jitter(rnd, 500), ""}}
		if qp%3 == 2 {
			parts = append(parts[:5:5], append([]part{{attribution.Excess, jitter(rnd, 3000), ""}}, parts[5:]...)...)
		}
		b.add(wr, parts...)
		at += 1_600_000
	}
	b.r.Kinds = map[string]attribution.Books{
		"send":    {Posted: 48_020, Completed: 47_900, Outstanding: 40, Lost: 12, Excluded: 68, Unsignalled: 41_900, Bytes: 31 << 30},
		"receive": {Posted: 30_000, Completed: 28_000, Outstanding: 1990, Flushed: 10, Bytes: 30 << 30},
	}
	b.r.WRs = attribution.Books{Posted: 78_020, Completed: 75_900, Outstanding: 2030, Flushed: 10, Lost: 12, Excluded: 68, Unsignalled: 41_900, Bytes: 61 << 30}
	b.r.Chains = attribution.Chains{Count: 2400, WRs: 18_400, Bytes: 31 << 30}
	b.r.Evidence = []string{"Wire time above the floor is called congestion because mlx5_0 port 1 counted rp_cnp_handled +184 in the window."}
	b.r.Floors = []attribution.Floor{
		{Device: "mlx5_0", Port: 1, Peer: "lid 4", Op: "WRITE", Transport: "RC", Learnt: 1500, Split: 2000, Known: true, BaseNS: 3600, RateBPS: 190_000_000_000,
			LinkBPS: 200_000_000_000, PCIeBPS: 252_000_000_000},
		{Device: "mlx5_1", Port: 1, Peer: "lid 4", Op: "READ", Transport: "RC", Learnt: 90, Split: 2000, Known: true, BaseNS: 3700, LinkBPS: 200_000_000_000},
		{Device: "mlx5_1", Port: 1, Peer: "lid 5", Op: "READ", Transport: "RC", Learnt: 3},
	}
	for i := range 20 {
		b.r.Queues = append(b.r.Queues, attribution.Queue{PID: pid, QPNum: 0x200 + uint32(i), Device: []string{"mlx5_0", "mlx5_1"}[i%2], Peer: []string{"lid 4", "lid 5", "lid 6"}[i%3], QueueSize: 32,
			Backlog: attribution.Backlog{Posted: 2400 + int64(i%3), DepthMean: 3.4, DepthMax: 31, DepthKnown: 2400,
				IdleNS: 8_300_000_000 + int64(i)*1_000_000, WindowNS: 10 * second, IdleRunning: 1_000_000_000, IdleRunnable: 100_000_000, IdleAsleep: 7_100_000_000, IdleUnknown: 100_000_000,
				IdleSyscalls: []attribution.Culprit{{Name: "futex", TotalNS: 6_900_000_000, Count: 300}, {Name: "poll", TotalNS: 200_000_000, Count: 9}},
				BytesPerSec:  166_000_000, WRsPerSec: 240}})
	}
	b.r.Queues = append(b.r.Queues, attribution.Queue{PID: pid, QPNum: 0x300, Device: "mlx5_0", Bypass: true,
		Backlog: attribution.Backlog{WindowNS: 10 * second}})
	together := attribution.Backlog{Posted: 13_210, DepthMean: 9.1, DepthMax: 118, DepthKnown: 13_200, IdleNS: 5_600_000_000, WindowNS: 10 * second,
		IdleRunning: 800_000_000, IdleRunnable: 100_000_000, IdleAsleep: 4_700_000_000,
		IdleSyscalls: []attribution.Culprit{{Name: "futex", TotalNS: 4_600_000_000, Count: 290}, {Name: "poll", TotalNS: 100_000_000, Count: 4}},
		BytesPerSec:  1_660_000_000, WRsPerSec: 1321}
	b.r.Ports = []attribution.PortReport{
		{Device: "mlx5_0", Port: 1, RateBPS: 200_000_000_000, TracedBPS: 13e9, TracedSent: 16_600_000_000, TracedRecv: 16_000_000_000, PortSent: 29_000_000_000, PortRecv: 16_300_000_000, Backlog: together},
		{Device: "mlx5_1", Port: 1, RateBPS: 200_000_000_000, TracedBPS: 13e9, TracedSent: 16_600_000_000, TracedRecv: 16_000_000_000, PortSent: 16_900_000_000, PortRecv: 16_300_000_000, Backlog: together},
	}
	b.r.EventQueues = []attribution.EventQueues{
		{Device: "mlx5_0", Vector: 0, Queues: 8, Line: 118, LineName: "mlx5_comp0@pci:0000:17:00.0", CPUs: "3", Vectors: 63},
		{Device: "mlx5_1", Vector: -1, Queues: 2},
		{Device: "mlx5_1", Vector: 5, Queues: 1, Line: 187, LineName: "mlx5_comp5@pci:0000:31:00.0", CPUs: "44-47", Vectors: 63},
	}
	for i := range 11 {
		b.r.Receive = append(b.r.Receive, attribution.PeerWait{Device: "mlx5_0", Peer: "lid 4", QPNum: 0x200 + uint32(i), Wait: distribution([]int64{1_200_000, 44_000_000, 46_000_000})})
	}
	for i := range 4 {
		b.r.Series = append(b.r.Series, attribution.SeriesPoint{Begin: origin + uint64(i)*2_500_000_000, End: origin + uint64(i+1)*2_500_000_000, Count: 1500, LatencyNS: 60_000_000, MaxNS: 130_000})
	}
	return b.report(c)
}

// bypassJob is UCX on rc_mlx5: queue pairs and bytes, but no post.
func bypassJob() *attribution.Report {
	c := testContext(5150, "allreduce", "./allreduce", "100", "131072")
	b := &builder{}
	for i := range 2 {
		b.r.Queues = append(b.r.Queues, attribution.Queue{PID: 5150, QPNum: 0x40 + uint32(i), Device: "mlx5_0", Peer: "lid 4", Bypass: true,
			Backlog: attribution.Backlog{WindowNS: 10 * second}})
	}
	b.r.Ports = []attribution.PortReport{{Device: "mlx5_0", Port: 1, RateBPS: 200_000_000_000, PortSent: 41_943_040_000, PortRecv: 41_943_040_000}}
	b.r.Kinds = map[string]attribution.Books{"send": {}, "receive": {}}
	return b.report(c)
}

// nothingOpen is a launcher given instead of a rank.
func nothingOpen() *attribution.Report {
	c := testContext(77, "mpirun", "mpirun", "-n", "2", "./train")
	c.Devices, c.Mappings, c.Probes, c.Cost = nil, nil, nil, event.Cost{}
	return (&builder{}).report(c)
}

// idleJob has queue pairs and does not use them.
func idleJob() *attribution.Report {
	c := testContext(78, "trainer", "./trainer")
	c.Targets[0].Exited = true
	c.Probes[0].Error = "permission denied"
	b := &builder{}
	b.r.Queues = []attribution.Queue{{PID: 78, QPNum: 0x55, Device: "mlx5_0", Backlog: attribution.Backlog{WindowNS: 10 * second}}}
	return b.report(c)
}

func booksOnly(comm string, send, receive attribution.Books) *attribution.Report {
	c := testContext(79, comm, comm)
	b := &builder{}
	b.r.Kinds = map[string]attribution.Books{"send": send, "receive": receive}
	b.r.WRs = attribution.Books{Posted: send.Posted + receive.Posted, Completed: send.Completed + receive.Completed, Outstanding: send.Outstanding + receive.Outstanding,
		Excluded: send.Excluded + receive.Excluded, Unsignalled: send.Unsignalled}
	b.r.Queues = []attribution.Queue{{PID: 79, QPNum: 0x55, Device: "mlx5_0", QueueSize: 128,
		Backlog: attribution.Backlog{Posted: send.Posted, WindowNS: 10 * second, DepthMean: 64, DepthMax: 127, DepthKnown: 4000}}}
	return b.report(c)
}

func receivesOnly() *attribution.Report {
	r := booksOnly("ib_write_bw", attribution.Books{}, attribution.Books{Posted: 512, Outstanding: 512})
	r.Doubts = []string{"Writes that arrive without a completion cannot be observed on this side."}
	return r
}

// receivingJob is a process that only receives, and does.
func receivingJob() *attribution.Report {
	r := booksOnly("storage-target", attribution.Books{}, attribution.Books{Posted: 5512, Completed: 5000, Outstanding: 512})
	rnd := rand.New(rand.NewPCG(7, 8))
	r.Receives = receiveTotals(rnd)
	var waits []int64
	for range 5000 {
		waits = append(waits, int64(jitter(rnd, 1_310_000)))
	}
	r.Receive = []attribution.PeerWait{{Device: "mlx5_0", Peer: "lid 4", QPNum: 0x55, Wait: distribution(waits)}}
	return r
}

func unsignalledOnly() *attribution.Report {
	return booksOnly("stream", attribution.Books{Posted: 99, Outstanding: 99}, attribution.Books{})
}

func excludedOnly() *attribution.Report {
	return booksOnly("ib_write_bw", attribution.Books{Posted: 1_250_000, Excluded: 1_250_000}, attribution.Books{})
}
