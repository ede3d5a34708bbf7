package attribution

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// EventQueues are the completion queues of a device that were armed and share a
// completion vector.
type EventQueues struct {
	Device string // empty: unknown
	Vector int64  // as given to ibv_create_cq; -1: it was not seen
	Queues int64  // at one time, at most
	// The vector's interrupt line, as far as its name tells: LineName is empty if not.
	Line     uint32
	LineName string
	CPUs     string // that handle it: "3" or "0-7"; empty: unknown
	Vectors  int64  // that the device is known to have; 0: unknown
}

type vectorKey struct {
	device string
	vector int64
}

// vectorUnknown: the creation of the completion queue was not seen. No device has
// vectorsMost: a larger number is damage.
const (
	vectorUnknown = 1<<32 - 1
	vectorsMost   = 1 << 12
)

// armedQueues are those of a vector.
type armedQueues struct{ now, most int64 }

// armed takes a KindArm.
func (e *Engine) armed(c *completionQueue, r *verbRecord) {
	c.arm(r.tid, r.time)
	if c.armed > 1 {
		return
	}
	k := vectorKey{e.objects.contexts[objectKey{c.pid, c.context}], -1}
	if c.vector < vectorsMost {
		k.vector = int64(c.vector)
	}
	if e.armedQueues[k] == nil {
		e.armedQueues[k] = new(armedQueues)
	}
	c.among = e.armedQueues[k]
	c.among.now++
	c.among.most = max(c.among.most, c.among.now)
}

// disarmed says that a completion queue is no more; c may be nil.
func (e *Engine) disarmed(c *completionQueue) {
	if c != nil && c.among != nil {
		c.among.now--
		c.among = nil
	}
}

// eventQueues of hardware: what a software device raises is not on a vector. Of
// those whose device is not known it is not known either.
func (e *Engine) eventQueues(ctx *event.Context) (list []EventQueues) {
	some := slices.ContainsFunc(ctx.Devices, func(d event.Device) bool { return !d.Software })
	for k, n := range e.armedQueues {
		if isHardware(ctx, k.device) || k.device == "" && some {
			q := EventQueues{Device: k.device, Vector: k.vector, Queues: n.most}
			q.handledBy(ctx.IRQs)
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b EventQueues) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Vector, b.Vector))
	})
	return list
}

func isHardware(ctx *event.Context, device string) bool {
	return slices.ContainsFunc(ctx.Devices, func(d event.Device) bool { return d.Name == device && !d.Software })
}

// handledBy finds the line of the vector: mlx5_core names it after the vector,
// mlx5_comp3@pci:0000:03:00.0 (irq_set_name of its pci_irq.c), before Linux 4.15
// without the address.
func (q *EventQueues) handledBy(lines []event.IRQ) {
	for _, line := range lines {
		name, _, _ := strings.Cut(line.Name, "@")
		number, ok := strings.CutPrefix(name, "mlx5_comp")
		n, err := strconv.ParseUint(number, 10, 31)
		if !ok || err != nil || line.Device != q.Device {
			continue
		}
		q.Vectors++
		if int64(n) == q.Vector {
			q.Line, q.LineName, q.CPUs = line.Line, validText(line.Name), validText(line.CPUs)
		}
	}
}
