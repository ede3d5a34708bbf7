package attribution

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

const (
	// sitesMost keys of samples are kept. A profile with more helps nobody, and
	// some of its readers need gigabytes for it.
	sitesMost = 8192
	// foldRest: two folds with fewer WRs between them show that there are more
	// keys than can be kept; new ones then begin with fewer labels.
	foldRest = 32 * sitesMost
	// siteWho culprits are named per site; what others did is charged to nobody.
	siteWho = 12
)

// siteKey is what a sample is told apart by. Where there are too many, the
// smaller ones lose labels: first queue pair and threads, then all but the
// stack, then the stack.
type siteKey struct {
	stack            uint64
	pid              uint32
	postTID, reapTID uint32
	queue            int32 // -1: other
	port             int16 // -1: other
	qpType           uint32
	opcode           uint8
	size             uint8 // see sizeLabel
	doneSource       DoneSource
	demand           Demand
	receive          bool
	lost             uint8 // how many times labels were taken away
}

const siteLevels = 3

// site sums the WRs of one key.
type site struct {
	key    siteKey
	count  int64
	total  uint64
	causes [numCauses]uint64
	who    []siteCulprit // of causes; at most siteWho
}

type siteCulprit struct {
	whoKey
	ns     uint64
	cgroup uint64 // that it was in last; 0: unknown
}

// sites make the samples. Those with the most time keep all their labels.
type sites struct {
	byKey  map[siteKey]*site
	recent [64]*site // that WRs went to lately, at a place that follows from the queue pair
	start  uint8     // labels that a new key is without
	since  int64     // WRs since the last fold
	folded int64     // sites that lost labels
	order  []*site
	spare  []*site
}

func newSites() sites { return sites{byKey: make(map[siteKey]*site), since: foldRest} }

func newSiteKey(m *measured, q *queueState) siteKey {
	return siteKey{
		stack:      m.stack,
		pid:        m.qp.pid,
		postTID:    m.postTID,
		reapTID:    m.reapTID,
		queue:      q.index,
		port:       q.port.index,
		qpType:     m.qp.qpType,
		opcode:     m.opcode,
		size:       sizeBucket(m.bytes),
		doneSource: m.doneSource,
		demand:     m.demand,
		receive:    m.receive,
	}
}

func sizeBucket(bytes uint64) uint8 {
	if bytes == 0 {
		return 0
	}
	return uint8(bits.Len64(bytes-1)) + 1
}

func (s *sites) add(m *measured, q *queueState, p *parts) {
	key := newSiteKey(m, q)
	s.since++
	recent := &s.recent[uint32(q.index)%uint32(len(s.recent))]
	if *recent == nil || (*recent).key != key {
		*recent = s.at(key)
	}
	at := *recent
	at.count++
	at.total += p.latency
	for _, cause := range p.used() {
		at.causes[cause] += p.causes[cause]
	}
	if !p.blames {
		return
	}
	for i := range m.segments {
		if s := &m.segments[i]; s.who != nil {
			at.charge(newWhoKey(s.cause, s.who), s.end-s.begin, s.who.cgroup)
		}
	}
}

// at finds the site of a key, or of the key with fewer labels.
func (s *sites) at(key siteKey) *site {
	for {
		if at := s.byKey[key]; at != nil {
			return at
		}
		if key.lost >= s.start {
			break
		}
		key = key.fewerLabels()
	}
	if len(s.byKey) >= sitesMost {
		if s.since < foldRest && s.start < siteLevels {
			s.start++
		}
		s.since = 0
		s.fold()
		return s.at(key)
	}
	return s.make(key)
}

func (s *sites) make(key siteKey) *site {
	at := new(site)
	if n := len(s.spare); n > 0 {
		at, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	*at = site{key: key, who: at.who[:0]}
	s.byKey[key] = at
	return at
}

// charge a culprit. A full list keeps its smallest entry for what comes next
// only if that is bigger: space-saving without its error, what is displaced
// goes unnamed.
func (s *site) charge(k whoKey, ns, cgroup uint64) {
	for i := range s.who {
		if w := &s.who[i]; w.whoKey == k {
			w.ns += ns
			if cgroup != 0 {
				w.cgroup = cgroup
			}
			return
		}
	}
	if len(s.who) < siteWho {
		s.who = append(s.who, siteCulprit{k, ns, cgroup})
		return
	}
	least := &s.who[0]
	for i := range s.who[1:] {
		if s.who[i+1].ns < least.ns {
			least = &s.who[i+1]
		}
	}
	if ns > least.ns {
		*least = siteCulprit{k, ns, cgroup}
	}
}

func (s *site) merge(o *site) {
	s.count += o.count
	s.total += o.total
	for i, ns := range o.causes {
		s.causes[i] += ns
	}
	for _, w := range o.who {
		s.charge(w.whoKey, w.ns, w.cgroup)
	}
}

// fold takes labels from the smaller sites until a quarter of the room is free.
func (s *sites) fold() {
	clear(s.recent[:])
	for len(s.byKey) > sitesMost*3/4 {
		s.order = s.order[:0]
		for _, at := range s.byKey {
			s.order = append(s.order, at)
		}
		slices.SortFunc(s.order, func(a, b *site) int {
			return cmp.Or(cmp.Compare(b.total, a.total), compareSites(&a.key, &b.key))
		})
		smaller := s.order[min(sitesMost/2, len(s.order)):]
		for _, at := range smaller {
			delete(s.byKey, at.key)
		}
		for _, at := range smaller {
			key := at.key.fewerLabels()
			into := s.byKey[key]
			if into == nil {
				into = s.make(key)
			}
			into.merge(at)
		}
		s.folded += int64(len(smaller))
		s.spare = append(s.spare, smaller...)
	}
}

func (k siteKey) fewerLabels() siteKey {
	lost := min(k.lost+1, siteLevels)
	switch lost {
	case 1:
		k.queue, k.postTID, k.reapTID = -1, 0, 0
	case 2:
		k = siteKey{stack: k.stack, pid: k.pid, queue: -1, port: -1, opcode: k.opcode, receive: k.receive}
	default:
		k = siteKey{queue: -1, port: -1}
	}
	k.lost = lost
	return k
}

func compareSites(a, b *siteKey) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.stack, b.stack),
		cmp.Compare(a.pid, b.pid),
		cmp.Compare(flag(a.receive), flag(b.receive)),
		cmp.Compare(a.opcode, b.opcode),
		cmp.Compare(a.size, b.size),
		cmp.Compare(a.queue, b.queue),
		cmp.Compare(a.postTID, b.postTID),
		cmp.Compare(a.reapTID, b.reapTID),
		cmp.Compare(a.port, b.port),
		cmp.Compare(a.qpType, b.qpType),
		cmp.Compare(a.doneSource, b.doneSource),
		cmp.Compare(a.demand, b.demand),
		cmp.Compare(a.lost, b.lost),
	)
}

// report makes the samples: for each site one that counts, and one for each
// cause and culprit with the time.
func (s *sites) report(a *aggregates, called *renaming, names *naming) []Sample {
	order := make([]*site, 0, len(s.byKey))
	for _, at := range s.byKey {
		order = append(order, at)
	}
	slices.SortFunc(order, func(x, y *site) int { return compareSites(&x.key, &y.key) })
	most := 0
	for _, at := range order {
		most += 1 + at.kinds()
	}
	samples := make([]Sample, 0, most) // tens of MB in a large job: growing it would take that several times
	for _, at := range order {
		whole := Sample{Stack: at.key.stack, PID: at.key.pid, Labels: at.key.labels(a, names), Count: at.count}
		samples = append(samples, whole)
		whole.Count, whole.Leaf = 0, true
		samples = at.leaves(samples, whole, called, names)
	}
	return samples
}

// kinds is how many leaves there may be: causes, and culprits.
func (s *site) kinds() int {
	n := len(s.who)
	for _, ns := range s.causes {
		if ns > 0 {
			n++
		}
	}
	return n
}

func (s *site) leaves(samples []Sample, leaf Sample, called *renaming, names *naming) []Sample {
	unnamed := s.causes
	type named struct {
		cause Cause
		who   string
	}
	type took struct {
		ns     uint64
		cgroup Cgroup
	}
	sums := make(map[named]took)
	for i := range s.who {
		w := &s.who[i]
		unnamed[w.cause] -= w.ns
		k := named{called[w.cause], names.culprit(&w.who)}
		sums[k] = took{sums[k].ns + w.ns, names.oneOf(sums[k].cgroup, w.cgroup)}
	}
	for cause, ns := range unnamed {
		if ns > 0 {
			k := named{called[cause], ""}
			sums[k] = took{ns: sums[k].ns + ns}
		}
	}
	keys := make([]named, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.who, b.who))
	})
	for _, k := range keys {
		leaf.Cause, leaf.Who, leaf.Cgroup, leaf.NS = k.cause, k.who, sums[k].cgroup, int64(sums[k].ns)
		samples = append(samples, leaf)
	}
	return samples
}

func (k *siteKey) labels(a *aggregates, names *naming) Labels {
	l := Labels{
		Op: other, Size: other, QP: other, Peer: other, Device: other, Transport: other,
		PostThread: other, ReapThread: other, DoneSource: k.doneSource, Demand: k.demand,
	}
	if k.lost < 3 {
		l.Op = opName(k.opcode, k.receive)
	}
	if k.lost < 2 {
		l.Size = sizeLabel(k.size)
		l.Transport = transportName(k.qpType)
		l.Device = a.ports[k.port].name.device
	}
	if k.lost < 1 {
		q := a.queues[k.queue]
		l.QP, l.Peer = q.label(), q.peer
		l.PostThread, l.ReapThread = names.thread(k.postTID), names.thread(k.reapTID)
	}
	return l
}

// label of a queue pair: its number as the tools of rdma-core print it.
func (q *queueState) label() string {
	if q.shared {
		return other
	}
	return fmt.Sprintf("0x%x", q.qp.num)
}
