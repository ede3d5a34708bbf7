package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// sumCells merges the cells that share a key.
type sumCells struct {
	by    string
	cells map[string]*cell
}

func (s *sumCells) add(key string, c *cell) {
	if s.cells == nil {
		s.cells = make(map[string]*cell)
	}
	if s.cells[key] == nil {
		s.cells[key] = newCell(c.split.fine)
	}
	s.cells[key].merge(c)
}

// groups makes every grouping from the two kinds of cells. Groups by operation
// and size hold the receives as well, as RECV; the others hold sends.
func (a *aggregates) groups(called *renaming, names *naming) []Group {
	op, size, both := sumCells{by: "op"}, sumCells{by: "size"}, sumCells{by: "op+size"}
	for _, c := range a.ops {
		name, bytes := opName(c.key.opcode, c.key.receive), c.key.sizeText()
		op.add(name, &c.cell)
		both.add(name+" "+bytes, &c.cell)
		if !c.key.receive {
			size.add(bytes, &c.cell)
		}
	}
	qp, peer, device, thread := sumCells{by: "qp"}, sumCells{by: "peer"}, sumCells{by: "device"}, sumCells{by: "thread"}
	queues := a.queueNames()
	for key, c := range a.byQueue {
		q := a.queues[key.queue]
		qp.add(queues[q.index], c)
		peer.add(cmp.Or(q.peer, "unknown"), c)
		device.add(cmp.Or(q.port.name.device, "unknown"), c)
		if key.tid == 0 {
			thread.add(other, c)
		} else {
			thread.add(names.thread(key.tid), c)
		}
	}
	var groups []Group
	for _, sums := range []sumCells{device, op, both, peer, qp, size, thread} { // in the order of their names
		from := len(groups)
		for key, c := range sums.cells {
			groups = append(groups, c.group(sums.by, key, called))
		}
		slices.SortFunc(groups[from:], func(a, b Group) int {
			return cmp.Or(cmp.Compare(b.Latency.Count, a.Latency.Count), cmp.Compare(a.Key, b.Key))
		})
	}
	return groups
}

// sizeText is the size in bytes, or the power of two it does not exceed.
func (k *opKey) sizeText() string {
	if k.rounded {
		return "<=" + sizeLabel(uint8(k.size))
	}
	return strconv.FormatUint(k.size, 10)
}

// queueNames are those of all queue pairs, with the process where two would have the
// same: devices of software may give the same numbers to each process.
func (a *aggregates) queueNames() []string {
	names, owner := make([]string, len(a.queues)), make(map[string]uint32)
	alike := make(map[string]bool)
	for i, q := range a.queues {
		names[i] = q.groupKey()
		if pid, known := owner[names[i]]; known && pid != q.qp.pid && !q.shared {
			alike[names[i]] = true
		}
		owner[names[i]] = q.qp.pid
	}
	for i, q := range a.queues {
		if alike[names[i]] {
			names[i] += fmt.Sprintf(" of pid %d", q.qp.pid)
		}
	}
	return names
}

// groupKey names a queue pair with its device: numbers are the device's.
func (q *queueState) groupKey() string {
	if q.shared {
		return other
	}
	if q.port.name.device == "" {
		return q.label()
	}
	return q.port.name.device + " " + q.label()
}
