package attribution

import (
	"fmt"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// What is above the floor has three possible names beside excess. A single WR
// only shows how long it took; so a stall is first marked as what its length
// would fit (stallCause), and the marks are kept apart. At the end the
// counters of the ports decide which of the names the run supports
// (newRenaming); without support they all are excess.

// rnrTimers are the values of ibv_qp_attr.min_rnr_timer, in ns: the
// responder's wish how long to wait after "receiver not ready" (InfiniBand
// specification 1.4, table 45).
var rnrTimers = [32]uint64{
	655_360_000, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000, 120_000,
	160_000, 240_000, 320_000, 480_000, 640_000, 960_000, 1_280_000, 1_920_000,
	2_560_000, 3_840_000, 5_120_000, 7_680_000, 10_240_000, 15_360_000, 20_480_000, 30_720_000,
	40_960_000, 61_440_000, 81_920_000, 122_880_000, 163_840_000, 245_760_000, 327_680_000, 491_520_000,
}

// rnrRepeats: so many timers in a row are recognised.
const rnrRepeats = 7

// stallCause marks an excess over a floor by its length.
//
// RNR: a few times one of the timers, or the peer's where that is known, plus what
// a round trip takes.
// Retransmit: at least the QP's timeout of 4.096 us * 2^timeout. Where that is
// not known, or the adaptive retransmission of ConnectX replaces it (it starts
// at microseconds and doubles), anything far above the floor may be one.
func stallCause(excess, floor uint64, qp *queuePair) Cause {
	if excess < 10_000 || excess < 2*floor {
		return Excess
	}
	for _, timer := range qp.peerTimers() {
		repeats := excess / timer
		if repeats >= 1 && repeats <= rnrRepeats && excess-repeats*timer <= timer/20+floor {
			return RNR
		}
	}
	const adaptive = 100_000
	timeout := uint64(adaptive)
	if qp.timeout > 0 {
		timeout = min(timeout, 4096<<(qp.timeout&31))
	}
	if excess >= timeout && excess >= 10*floor {
		return Retransmit
	}
	return Excess
}

// peerTimers are those that the peer may ask this queue pair to wait for.
func (q *queuePair) peerTimers() []uint64 {
	if q.connected == nil || q.connected.minRNRTimer == 0 { // 0 is also what was not seen
		return rnrTimers[:]
	}
	i := q.connected.minRNRTimer & 31
	return rnrTimers[i : i+1]
}

// evidence is a port counter that speaks for a cause when it moved: of mlx5
// (NVIDIA, "Understanding mlx5 Linux counters and status parameters"), rxe,
// bnxt_re and irdma (their tables of counters in the kernel), and of the
// InfiniBand specification (port_xmit_wait, see waitTick).
var evidence = []struct {
	counter string
	cause   Cause
}{
	{"rnr_nak_retry_err", RNR},
	{"rcvd_rnr_err", RNR},
	{"rnr_naks_rcvd", RNR},
	{"local_ack_timeout_err", Retransmit},
	{"packet_seq_err", Retransmit},
	{"implied_nak_seq_err", Retransmit},
	{"roce_adp_retrans", Retransmit},
	{"roce_adp_retrans_to", Retransmit},
	{"rcvd_seq_err", Retransmit},
	{"completer_retry_err", Retransmit},
	{"to_retransmits", Retransmit},
	{"seq_err_naks_rcvd", Retransmit},
	{"rp_cnp_handled", Congestion},
	{"rx_cnp_pkts", Congestion},
	{"cnpHandled", Congestion},
	{waitCounter, Congestion},
}

// waitCounter counts time and not events: the ticks in which a port had data to
// send and sent nothing, for want of credits or of its turn. A tick is a multiple
// of the time a lane takes for a byte, by a factor between 1 and 256 that adapters
// tell their subnet manager only; it is known to be 8 bytes of the whole port on
// some, 32 of each lane on others (InfiniBand specification, PortSamplesControl;
// NVIDIA, ibdiagnet, "Congestion Assessment on InfiniBand Links"). waitTick is the
// least that it can be: a byte on each of the four lanes that ports have.
const (
	waitCounter = "port_xmit_wait"
	waitTick    = 4 // bytes
)

// waited is how long a port waited at least, by its ticks, ns; 0 where its rate is
// not known.
func waited(ticks, rateBPS uint64) uint64 {
	if rateBPS == 0 {
		return 0
	}
	return mulDiv(ticks, waitTick*8*1_000_000_000, rateBPS)
}

// stallCount of a port: by mark, how many WRs bear it, those behind them left out,
// and for how long any was delayed by what bears it.
type stallCount struct {
	wrs     [numCauses]int64
	stalled [numCauses]intervalSet
}

// add a stall of one WR.
func (c *stallCount) add(s *wireStall) {
	c.wrs[s.cause]++
	c.stalled[s.cause].add(s.begin, s.end)
}

// portName identifies a port.
type portName struct {
	device string
	number uint8
}

// newRenaming decides what the marks are called, and says why. A name is given
// only where the counters of every port that contributed to a mark support it,
// and have moved at least once for ten marked WRs, or for a tenth of the time:
// one lost packet does not explain a thousand stalls.
func newRenaming(ctx *event.Context, ports []*tracedPort) (*renaming, []string) {
	called := new(renaming)
	for i := range called {
		called[i] = Cause(i)
	}
	var reasons []string
	for _, mark := range [...]Cause{RNR, Retransmit, Excess} {
		called[mark] = Excess
		for _, candidate := range candidates(mark) {
			if why, ok := supported(ctx, ports, mark, candidate); ok {
				called[mark] = candidate
				reasons = append(reasons, why)
				break
			}
		}
	}
	return called, reasons
}

// candidates for what a mark may be called, best first. Congestion can be of any
// length, also of one that would fit another name.
func candidates(mark Cause) []Cause {
	switch mark {
	case RNR:
		return []Cause{RNR, Retransmit, Congestion}
	case Retransmit:
		return []Cause{Retransmit, Congestion}
	}
	return []Cause{Congestion}
}

func supported(ctx *event.Context, ports []*tracedPort, mark, candidate Cause) (string, bool) {
	var reasons []string
	for _, p := range ports {
		if p.stalls.wrs[mark] == 0 {
			continue
		}
		names, ok := p.evidence(ctx, mark, candidate)
		if !ok {
			return "", false
		}
		reasons = append(reasons, fmt.Sprintf("%s port %d counted %s", p.name.device, p.name.number, names))
	}
	if len(reasons) == 0 {
		return "", false
	}
	return fmt.Sprintf("Wire time above the floor is called %s because %s in the window.",
		candidate, strings.Join(reasons, " and ")), true
}

// evidence names the counters of a port that speak for a cause; false: they do not
// explain so many WRs with that mark.
func (p *tracedPort) evidence(ctx *event.Context, mark, cause Cause) (names string, ok bool) {
	port := findPort(ctx, p.name)
	if port == nil {
		return "", false
	}
	var list []string
	var moved, stood uint64
	for _, e := range evidence {
		if e.cause != cause {
			continue
		}
		delta, ok := counterDelta(port, e.counter)
		switch {
		case !ok || delta == 0:
			continue
		case e.counter == waitCounter:
			stood = waited(delta, port.RateBPS)
			list = append(list, fmt.Sprintf("%s +%d, at least %d us", e.counter, delta, stood/1000))
		default:
			moved += delta
			list = append(list, fmt.Sprintf("%s +%d", e.counter, delta))
		}
	}
	const share = 10
	enough := moved > 0 && moved*share >= uint64(p.stalls.wrs[mark]) || stood > 0 && stood >= p.stalls.stalled[mark].covered/share
	return strings.Join(list, ", "), enough
}

// counterDelta of a counter, which may carry the prefix "hw_counters/"; false
// where it is not there.
func counterDelta(port *event.Port, name string) (uint64, bool) {
	for i := range port.Counters {
		c := &port.Counters[i]
		if strings.TrimPrefix(c.Name, "hw_counters/") == name {
			// A counter that was reset meanwhile ran from zero.
			if c.Stop < c.Start {
				return c.Stop, true
			}
			return c.Stop - c.Start, true
		}
	}
	return 0, false
}

func findPort(ctx *event.Context, name portName) *event.Port {
	for i := range ctx.Devices {
		d := &ctx.Devices[i]
		if d.Name != name.device {
			continue
		}
		for j := range d.Ports {
			if d.Ports[j].Number == int(name.number) {
				return &d.Ports[j]
			}
		}
	}
	return nil
}
