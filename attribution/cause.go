package attribution

import (
	"cmp"
	"slices"
)

// maxWho is the most culprits kept at a time; the smaller half is folded into
// its cause when they are more.
const maxWho = 2048

// whoShown is how many culprits of a cause are named in a Report.
const whoShown = 8

// whoKey is a culprit of a cause. Threads of a process count as the process,
// wherever it is moved: its cgroup is kept beside the key.
type whoKey struct {
	cause Cause
	who   culprit
}

func newWhoKey(cause Cause, who *culprit) whoKey {
	k := whoKey{cause, *who}
	k.who.cgroup = 0
	if who.kind == culpritTask {
		k.who.id = who.pid
	}
	return k
}

type whoSum struct {
	ns     uint64
	count  int64
	last   int64  // the WR counted last
	cgroup uint64 // that it was in last; 0: unknown
}

type recentWho struct {
	key whoKey
	sum *whoSum
}

// culprits sums what was charged to whom.
type culprits struct {
	sums   map[whoKey]*whoSum
	recent [64]recentWho // of sums, at a place that follows from the key
	// folded: culprits that were too small to keep, by cause.
	folded       [numCauses]whoSum
	foldedKinds  int64
	foldingOrder []whoKey // scratch
}

func newCulprits() culprits { return culprits{sums: make(map[whoKey]*whoSum)} }

// add a segment of the WR numbered wr.
func (c *culprits) add(s *segment, wr int64) {
	if s.who == nil {
		return
	}
	sum := c.sum(newWhoKey(s.cause, s.who))
	sum.ns += s.end - s.begin
	if sum.last != wr {
		sum.last = wr
		sum.count++
	}
	if s.who.cgroup != 0 {
		sum.cgroup = s.who.cgroup
	}
}

// sum of a key. Few keys come again and again, and they are dear to hash.
func (c *culprits) sum(k whoKey) *whoSum {
	recent := &c.recent[(k.who.id+uint32(k.cause))%uint32(len(c.recent))]
	if recent.sum == nil || recent.key != k {
		sum := c.sums[k]
		if sum == nil {
			if len(c.sums) >= maxWho {
				c.fold()
			}
			sum = &whoSum{last: -1}
			c.sums[k] = sum
		}
		*recent = recentWho{k, sum}
	}
	return recent.sum
}

// fold the smaller half into one entry per cause.
func (c *culprits) fold() {
	clear(c.recent[:])
	keys := c.foldingOrder[:0]
	for k := range c.sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b whoKey) int {
		return cmp.Or(cmp.Compare(c.sums[b].ns, c.sums[a].ns), compareWho(&a, &b))
	})
	for _, k := range keys[len(keys)/2:] {
		sum := c.sums[k]
		c.folded[k.cause].ns += sum.ns
		c.folded[k.cause].count += sum.count
		c.foldedKinds++
		delete(c.sums, k)
	}
	c.foldingOrder = keys
}

func compareWho(a, b *whoKey) int {
	return cmp.Or(
		cmp.Compare(a.cause, b.cause),
		cmp.Compare(a.who.kind, b.who.kind),
		cmp.Compare(a.who.id, b.who.id),
		cmp.Compare(a.who.pid, b.who.pid),
		slices.Compare(a.who.name[:], b.who.name[:]),
		compareChains(a.who.chain, b.who.chain),
		trueFirst(a.who.told, b.who.told),
	)
}

// report gives the culprits of each cause, worst first: whoShown of them, and
// the rest as one.
func (c *culprits) report(called *renaming, names *naming) (r [numCauses][]Culprit) {
	merged := make(map[Cause]map[string]*Culprit)
	for k, sum := range c.sums {
		cause := called[k.cause]
		if merged[cause] == nil {
			merged[cause] = make(map[string]*Culprit)
		}
		name := names.culprit(&k.who)
		m := merged[cause][name]
		if m == nil {
			m = &Culprit{Name: name}
			merged[cause][name] = m
		}
		m.TotalNS += int64(sum.ns)
		m.Count += sum.count
		m.Cgroup = names.oneOf(m.Cgroup, sum.cgroup)
	}
	var folded [numCauses]Culprit
	for i, sum := range c.folded {
		folded[called[i]].TotalNS += int64(sum.ns)
		folded[called[i]].Count += sum.count
	}
	for cause := range r {
		var list []Culprit
		for _, m := range merged[Cause(cause)] {
			list = append(list, *m)
		}
		r[cause] = topCulprits(list, folded[cause])
	}
	return r
}

// topCulprits sorts, and sums what is not shown with rest.
func topCulprits(list []Culprit, rest Culprit) []Culprit {
	slices.SortFunc(list, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Name, b.Name))
	})
	if len(list) > whoShown {
		for _, m := range list[whoShown:] {
			rest.TotalNS += m.TotalNS
			rest.Count += m.Count
		}
		list = list[:whoShown]
	}
	if rest.TotalNS > 0 {
		rest.Name = other
		list = append(list, rest)
	}
	return list
}

// other is the key of everything beyond a bound.
const other = "(other)"

func sortCauses(causes []CauseTotal) {
	slices.SortFunc(causes, func(a, b CauseTotal) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Cause, b.Cause))
	})
}

// renaming maps the causes of single WRs to those that the evidence of the
// whole run allows: see evidence.go.
type renaming [numCauses]Cause

func (r *renaming) apply(sums *[numCauses]uint64) (renamed [numCauses]uint64) {
	for i, ns := range sums {
		renamed[r[i]] += ns
	}
	return renamed
}
