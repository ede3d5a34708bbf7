package export

import (
	"fmt"
	"strconv"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// eventQueues shows which interrupts announce completions, and where they are
// handled: a program that leaves comp_vector at 0 has all of them on one CPU.
func eventQueues(p *page, r *attribution.Report) {
	if len(r.EventQueues) == 0 {
		return
	}
	p.heading("EVENT QUEUES", "completion queues that were armed, and their interrupts")
	t := newTable("lrrlr", "device", "vector", "queues", "line", "on CPU")
	for i, q := range r.EventQueues {
		vector, line, cpus := "unknown", "unknown", "?"
		if q.Vector >= 0 {
			vector = strconv.FormatInt(q.Vector, 10)
		}
		if q.LineName != "" {
			line, cpus = fmt.Sprintf("%s (irq %d)", clean(q.LineName), q.Line), cleanOr(q.CPUs, "?")
		}
		t.row(plain(cleanOr(q.Device, "?"), vector, count(q.Queues), line, cpus)...)
		t.remark(vectorRemark(r.EventQueues, i))
	}
	t.write(p)
}

// vectorRemark where several queues of a device share its only vector in use.
func vectorRemark(all []attribution.EventQueues, i int) string {
	q := all[i]
	for j, other := range all {
		if j != i && other.Device == q.Device {
			return ""
		}
	}
	if q.Queues < 2 || q.Vector < 0 || q.Vectors < 2 {
		return ""
	}
	return fmt.Sprintf("all on one of %d vectors, so one CPU takes their interrupts: comp_vector of ibv_create_cq spreads them", q.Vectors)
}
