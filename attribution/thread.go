package attribution

// threadsMost threads have their exposed time measured each; the rest share
// one entry, where the same moment in two of them counts once.
const threadsMost = 4096

// exposedThread is the time of one thread that delayed work requests.
type exposedThread struct {
	classes [numClasses]intervalSet
}

// exposure measures each thread-nanosecond once per class, however many work
// requests it delayed. What happens on the wire is counted per queue pair.
type exposure struct {
	threads map[uint32]*exposedThread
	last    *exposedThread
	lastTID uint32
	rest    exposedThread
}

func newExposure() exposure { return exposure{threads: make(map[uint32]*exposedThread)} }

func (e *exposure) add(q *queueState, segments []segment) {
	for i := 0; i < len(segments); {
		s := &segments[i]
		class, end := s.cause.Class(), s.end
		// What follows without a gap, in the same class and thread, is one interval.
		for i++; i < len(segments); i++ {
			next := &segments[i]
			if next.begin != end || next.tid != s.tid || next.cause.Class() != class {
				break
			}
			end = next.end
		}
		switch class {
		case Wire:
			q.exposedWire.add(s.begin, end)
		case Undecided:
			q.exposedUndecided.add(s.begin, end)
		default:
			e.thread(s.tid).classes[class].add(s.begin, end)
		}
	}
}

func (e *exposure) thread(tid uint32) *exposedThread {
	if e.last != nil && e.lastTID == tid {
		return e.last
	}
	t := e.threads[tid]
	if t == nil {
		if len(e.threads) >= threadsMost {
			return &e.rest
		}
		t = new(exposedThread)
		e.threads[tid] = t
	}
	e.last, e.lastTID = t, tid
	return t
}

func (e *exposure) report(queues []*queueState) (r [numClasses]int64) {
	for _, t := range e.threads {
		for c := range t.classes {
			r[c] += int64(t.classes[c].covered)
		}
	}
	for c := range e.rest.classes {
		r[c] += int64(e.rest.classes[c].covered)
	}
	for _, q := range queues {
		r[Wire] += int64(q.exposedWire.covered)
		r[Undecided] += int64(q.exposedUndecided.covered)
	}
	return r
}
