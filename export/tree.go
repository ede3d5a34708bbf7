package export

import (
	"sort"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// node of the tree that pictures are drawn from: process, functions from the
// outermost one to the posting site, class, cause, culprit.
type node struct {
	name     string
	level    level
	class    attribution.Class
	total    int64 // ns, with all above it
	self     int64 // ns that end here
	wrs      int64 // work requests: posted below here, or touched by this cause
	children []*node
	index    map[string]*node
}

func (n *node) child(f frame) *node {
	key := string(rune(f.level)) + f.name
	if c := n.index[key]; c != nil {
		return c
	}
	c := &node{name: f.name, level: f.level, class: f.class}
	if n.index == nil {
		n.index = map[string]*node{}
	}
	n.index[key] = c
	n.children = append(n.children, c)
	return c
}

// newTree of the report's samples; the root is all of them. Sums that overflow
// stop at the largest number.
func newTree(r *attribution.Report) *node {
	root := &node{name: "all work requests", level: levelMissing}
	frames, c := newFrames(r), context(r)
	for _, s := range r.Samples {
		if s.Leaf && s.NS <= 0 {
			continue
		}
		stack := append([]frame{{name: processName(c, s.PID), level: levelMissing}}, frames.user(s)...)
		n := root
		n.add(s, s.Leaf)
		for _, f := range stack {
			n = n.child(f)
			n.add(s, s.Leaf)
		}
		for _, f := range upper(s) {
			n = n.child(f)
			n.add(s, true)
			if f.level != levelClass {
				n.wrs = sum(n.wrs, max(s.Count, 0))
			}
		}
		if s.Leaf {
			n.self = sum(n.self, s.NS)
		}
	}
	root.sort()
	return root
}

// add a sample: time from the leaves, work requests from those without one.
func (n *node) add(s attribution.Sample, leaf bool) {
	if leaf {
		n.total = sum(n.total, max(s.NS, 0))
	} else {
		n.wrs = sum(n.wrs, max(s.Count, 0))
	}
}

func sum(a, b int64) int64 {
	if a > (1<<63-1)-b {
		return 1<<63 - 1
	}
	return a + b
}

// sort by level and name: the same function stands at the same place in every
// picture, and the classes in the order of output.
func (n *node) sort() {
	sort.SliceStable(n.children, func(i, j int) bool {
		a, b := n.children[i], n.children[j]
		if a.level != b.level {
			return a.level < b.level
		}
		if a.level == levelClass {
			return rankOf[a.class] < rankOf[b.class]
		}
		return a.name < b.name
	})
	for _, c := range n.children {
		c.sort()
	}
}

// rankOf a class in the order of output.
var rankOf = func() (rank [classes]int) {
	for i, c := range attribution.Classes {
		rank[c] = i
	}
	return rank
}()
