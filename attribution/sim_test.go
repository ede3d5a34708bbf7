package attribution

import (
	"container/heap"
	"math/rand/v2"
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// simConfig describes a program and a device for the simulation of what the
// verbs library, a provider and a NIC do with work requests. It knows the
// truth of each; the engine sees the events alone.
type simConfig struct {
	seed      uint64
	qps       int
	depth     int  // max_send_wr, of which the program uses all
	target    int  // in flight that the program aims at
	threads   int  // posters
	poller    bool // one more thread reaps all
	list      int  // WRs in a call at most
	signal    int  // every n-th is signalled; 1: all
	sigAll    bool
	wqe       bool   // WQE indices are seen
	wrID      string // "constant", "counter", "slot"
	builder   bool
	overfill  bool   // posts until refused
	latency   uint64 // of the wire, at most
	lazy      uint64 // pause between polls at most
	gate      uint64 // when recording begins
	end       uint64
	noEmpty   bool
	fails     int // one in so many requests fails, 0: none
	resets    bool
	receives  bool // on the same CQ
	shared    bool // from one queue for all
	destroys  int  // one in so many turns a queue pair is destroyed, 0: none
	losses    int  // records lost at so many times
	pauses    int  // and so many times in which probes are out
	unseen    int  // one in so many posts is made past the probes, 0: none
	knowSig   bool
	knowDepth bool
}

// trueWR is the truth about a work request.
type trueWR struct {
	id        uint64
	wrID      uint64
	qp        *trueQP
	begin     uint64
	done      uint64
	signalled bool
	receive   bool
	num       uint32 // of its queue pair then
	status    uint32
	wqe       uint16
	seen      bool // its post was recorded
}

type trueQP struct {
	addr   uint64
	num    uint32
	sq     []*trueWR // not yet reaped
	rq     []*trueWR // no message has come yet
	last   uint64    // done of the last request
	posted int
	wqe    uint16
	failed bool
	locked uint64
	epoch  int
	calls  int // posting calls under way

	received int // receives posted
	taken    int // of these, reaped
}

type simStep struct {
	at   uint64
	seq  int
	what func()
}

type simSteps []simStep

func (s simSteps) Len() int { return len(s) }
func (s simSteps) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].seq < s[j].seq
}
func (s simSteps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *simSteps) Push(x any)   { *s = append(*s, x.(simStep)) }
func (s *simSteps) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}

type sim struct {
	simConfig
	rng    *rand.Rand
	steps  simSteps
	seq    int
	now    uint64
	qps    []*trueQP
	cq     []*trueWR // visible, not yet polled
	tape   *tape
	truth  map[uint64]*trueWR // by id
	nextID uint64
	calls  map[uint32]uint32
	empty  uint64
	emptyT uint32

	srq          []*trueWR
	sharedPosted int
	sharedTaken  int
}

func newSim(cfg simConfig) *sim {
	s := &sim{
		simConfig: cfg, rng: rand.New(rand.NewPCG(cfg.seed, 1)), tape: newTape(),
		truth: make(map[uint64]*trueWR), calls: make(map[uint32]uint32),
	}
	for i := range cfg.qps {
		s.qps = append(s.qps, &trueQP{addr: tapeQP + uint64(i)*0x100, num: tapeNum + uint32(i)})
	}
	return s
}

func (s *sim) in(d uint64, what func()) {
	s.seq++
	heap.Push(&s.steps, simStep{s.now + d, s.seq, what})
}

func (s *sim) upTo(n uint64) uint64 { return 1 + s.rng.Uint64N(max(n, 1)) }

func (s *sim) emit(ev event.Event) {
	if s.now >= s.gate {
		ev.Time = s.now
		s.tape.add(ev)
	}
}

// run the program and return what was recorded.
func (s *sim) run() []event.Event {
	if s.gate == 0 {
		for _, q := range s.qps {
			s.describe(q, event.ObjectCreated, 3)
		}
	} else {
		s.in(s.gate, func() {
			for _, q := range s.qps {
				s.describe(q, event.ObjectFound, 3)
			}
		})
	}
	for i := range s.threads {
		s.in(uint64(i), func() { s.program(worker + uint32(i)) })
	}
	if s.poller {
		s.in(3, func() { s.poll(third, func() {}) })
	}
	for len(s.steps) > 0 {
		step := heap.Pop(&s.steps).(simStep)
		s.now = step.at
		if s.now > s.end {
			break
		}
		step.what()
	}
	events := s.tape.events
	for range s.losses {
		events = s.lose(events)
	}
	for begin := s.gate; s.pauses > 0; s.pauses-- {
		begin += 1 + s.rng.Uint64N(10_000)
		end := begin + 1 + s.rng.Uint64N(5_000)
		events = s.pause(events, begin, end)
		begin = end
	}
	return events
}

// pause takes out some of what posts and polls between begin and end left: the
// probes come and go one by one.
func (s *sim) pause(events []event.Event, begin, end uint64) []event.Event {
	kept := slices.DeleteFunc(slices.Clone(events), func(ev event.Event) bool {
		switch ev.Kind {
		case event.KindWR, event.KindCompletion, event.KindPostEnd, event.KindArm:
		default:
			return false
		}
		gone := ev.Time >= begin && ev.Time < end && s.rng.IntN(3) > 0
		if w := s.truth[ev.Verb.Stack]; gone && w != nil && ev.Kind == event.KindWR {
			w.seen = false
		}
		return gone
	})
	return append(kept,
		event.Event{Time: begin, Kind: event.KindPause, Flags: event.PauseBegin},
		event.Event{Time: end, Kind: event.KindPause, Flags: event.PauseEnd})
}

func (s *sim) describe(q *trueQP, what event.ObjectEvent, state uint32) {
	o := &event.QP{Addr: q.addr, Num: q.num, Type: 2, State: state, SendCQ: tapeCQ, RecvCQ: tapeCQ, SigAll: 2}
	if s.shared {
		o.SRQ = tapeSRQ
	}
	if s.knowDepth || what == event.ObjectCreated {
		o.MaxSendWR = uint32(s.depth)
	}
	if s.knowSig || what == event.ObjectCreated {
		o.SigAll = 0
		if s.sigAll {
			o.SigAll = 1
		}
	}
	if what == event.ObjectModified {
		o.AttrMask = attrState
	}
	s.emit(event.Event{Kind: event.KindQP, Object: &event.Object{Event: what, QP: o}})
}

// program posts while there is room, and polls.
func (s *sim) program(tid uint32) {
	q := s.qps[s.rng.IntN(len(s.qps))]
	again := func() { s.in(s.upTo(20), func() { s.program(tid) }) }
	switch {
	case s.destroys > 0 && q.calls == 0 && s.rng.IntN(s.destroys) == 0:
		s.destroy(q)
		again()
	case s.receives && tid == worker && s.receiving(q) < receives && s.rng.IntN(2) == 0:
		s.postReceive(tid, q, again)
	case q.failed && s.resets && s.rng.IntN(4) == 0:
		s.reset(q)
		again()
	case !q.failed && (len(q.sq) < s.target || s.overfill && s.rng.IntN(4) == 0):
		s.post(tid, q, again)
	case s.poller:
		again()
	default:
		s.poll(tid, again)
	}
}

func (s *sim) reset(q *trueQP) {
	posted := q.posted
	s.forgetAll(q)
	q.posted = posted
	s.describe(q, event.ObjectModified, 0)
	s.describe(q, event.ObjectModified, 3)
}

// lose drops the records of a random stretch and says so.
func (s *sim) lose(events []event.Event) []event.Event {
	if len(events) < 10 {
		return events
	}
	from := s.rng.IntN(len(events) - 5)
	n := 1 + s.rng.IntN(5)
	lost := events[from : from+n]
	begin, end := lost[0].Time, lost[0].Time
	for i := range lost {
		begin, end = min(begin, lost[i].Time), max(end, lost[i].Time)
	}
	loss := event.Event{
		Time: end + s.rng.Uint64N(50), Kind: event.KindLoss, PID: tapePID,
		Loss: event.Loss{Begin: begin - min(begin, s.rng.Uint64N(50))},
	}
	for i := range lost {
		switch lost[i].Kind {
		case event.KindWR, event.KindCompletion, event.KindPostEnd:
			loss.Loss.Count++
		default:
			return events
		}
		if w := s.truth[lost[i].Verb.Stack]; w != nil && lost[i].Kind == event.KindWR {
			w.seen = false
		}
	}
	rest := slices.Concat(events[:from], events[from+n:], []event.Event{loss})
	return rest
}
