package attribution

// parts are the sums of one work request's segments by cause and class.
type parts struct {
	latency uint64
	causes  [numCauses]uint64
	classes [numClasses]uint64
	nonzero [numCauses]Cause // the first kinds of them
	kinds   int
	blames  bool // some segment has a culprit
}

func (p *parts) sum(segments []segment) {
	for _, cause := range p.used() {
		p.causes[cause] = 0
	}
	p.latency, p.classes, p.kinds, p.blames = 0, [numClasses]uint64{}, 0, false
	for i := range segments {
		s := &segments[i]
		p.blames = p.blames || s.who != nil
		p.add(s.cause, s.end-s.begin)
	}
}

func (p *parts) add(cause Cause, ns uint64) {
	if ns == 0 {
		return
	}
	if p.causes[cause] == 0 {
		p.nonzero[p.kinds] = cause
		p.kinds++
	}
	p.causes[cause] += ns
	p.classes[cause.Class()] += ns
	p.latency += ns
}

// used are the causes with time.
func (p *parts) used() []Cause { return p.nonzero[:p.kinds] }

// cell accumulates the work requests that share a key. Two kinds of cells
// serve every grouping: those by operation and size, and those by queue pair
// and posting thread; the others are merged from them when the Report is made.
type cell struct {
	bytes   int64
	latency durations
	classes [numClasses]durations // zeros left out
	split   splitTable
	touched [numCauses]int64 // WRs with a part of this cause
}

func newCell(fine uint8) *cell { return &cell{split: splitTable{fine: fine}} }

func (c *cell) add(p *parts, bytes uint64) {
	c.bytes += int64(bytes)
	c.latency.add(p.latency)
	for i, ns := range p.classes {
		if ns > 0 {
			c.classes[i].add(ns)
		}
	}
	bucket := c.split.bucket(p.latency)
	bucket.count++
	for _, cause := range p.used() {
		c.touched[cause]++
		bucket.causes[cause] += p.causes[cause]
	}
}

func (c *cell) merge(other *cell) {
	c.bytes += other.bytes
	c.latency.merge(&other.latency)
	for i := range c.classes {
		c.classes[i].merge(&other.classes[i])
	}
	for i, n := range other.touched {
		c.touched[i] += n
	}
	c.split.merge(&other.split)
}

// classReport gives the distribution of each class over all WRs of the cell.
func (c *cell) classReport() (r [numClasses]Distribution) {
	for i := range c.classes {
		r[i] = c.classes[i].report(c.latency.count)
	}
	return r
}

func (c *cell) splitReport(permille int64, called *renaming) Split {
	around := c.split.around(c.latency.count, permille)
	return around.report(called)
}

func (c *cell) group(by, key string, called *renaming) Group {
	all := c.split.all()
	return Group{
		By:      by,
		Key:     key,
		Bytes:   c.bytes,
		Latency: c.latency.report(c.latency.count),
		Classes: c.classReport(),
		ProbeNS: int64(all.causes[Probe]),
		AtP50:   c.splitReport(500, called),
		AtP99:   c.splitReport(990, called),
	}
}
