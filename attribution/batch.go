package attribution

// batchWRs are added to the sums together. Each sum is code and memory of its own:
// all of them for one WR, and what led to it, are more than the nearest cache of
// instructions holds, and would leave it before the next WR.
const batchWRs = 16

// batch of WRs that are final.
type batch struct {
	wrs   [batchWRs]*delayed
	parts [batchWRs]parts
	used  int
}

// take a WR, and say whether the batch is full.
func (b *batch) take(d *delayed) bool {
	b.wrs[b.used] = d
	b.used++
	return b.used == batchWRs
}

// sum adds a batch to all sums: to each of them in the order in which the WRs came.
func (a *aggregates) sum() {
	wrs := a.split.wrs[:a.split.used]
	for i, d := range wrs {
		p := &a.split.parts[i]
		p.sum(d.m.segments)
		if ns := p.causes[WireUnsplit]; ns > 0 {
			a.unsplit.wrs++
			a.unsplit.ns += int64(ns)
		}
	}
	a.sumCells(wrs)
	for i, d := range wrs {
		k := &a.sends
		if d.m.receive {
			k = &a.receives
		}
		k.add(&d.m, &a.split.parts[i], a.measured+int64(i))
	}
	for i, d := range wrs {
		a.sites.add(&d.m, d.queue, &a.split.parts[i])
	}
	for i, d := range wrs {
		a.incidents.add(&d.m, d.queue.index, a.measured+int64(i))
	}
	for _, d := range wrs {
		a.exposure.add(d.queue, d.m.segments)
		a.line.giveBack(d)
	}
	a.measured += int64(len(wrs))
	a.split.used = 0
}

func (a *aggregates) sumCells(wrs []*delayed) {
	for i, d := range wrs {
		if !d.m.receive {
			a.queueCell(d.queue, d.m.postTID).add(&a.split.parts[i], d.m.bytes)
		} else if !d.m.unmatched {
			d.queue.peerWait.add(d.m.peerWait)
		}
	}
	for i, d := range wrs {
		a.op(&d.m).add(&a.split.parts[i], d.m.bytes)
	}
	for i, d := range wrs {
		if !d.m.receive {
			a.series.add(d.m.reap, &a.split.parts[i], d.m.postBegin)
		}
	}
}
