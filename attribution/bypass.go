package attribution

import (
	"fmt"
	"path"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// bypassLeast: a port that moved less, in bytes, says nothing.
const bypassLeast = 64 << 10

// directLibraries drive queue pairs without the verbs library.
var directLibraries = []struct{ prefix, what string }{
	{"libuct_ib", "UCX rc_mlx5 writes its own work queue entries"},
	{"libnvshmem_transport", "NVSHMEM lets the GPU or its own code write work queue entries"},
	{"librte_net_mlx5", "DPDK writes its own work queue entries"},
	{"librte_common_mlx5", "DPDK writes its own work queue entries"},
}

const stateReadyToSend = 3 // IBV_QPS_RTS

// owner: the queue pairs of one process on one port.
type owner struct {
	pid  uint32
	port portName
}

// markBypass finds processes that have queue pairs ready to send on a port and
// never posted to any of them, while the port moved bytes. That alone is also
// how the passive side of one-sided operations looks, or an idle process on a
// busy port; so it is called bypass only where code is loaded that is known to
// write work queue entries itself. queues[i] describes states[i].
func markBypass(ctx *event.Context, queues []Queue, states []*queueState, ports []PortReport) []string {
	silent := make(map[owner][]int)
	posting := make(map[owner]bool)
	var order []owner
	for i, q := range states {
		o := owner{q.qp.pid, q.port.name}
		switch {
		case queues[i].Posted > 0:
			posting[o] = true
		case q.qp.state == stateReadyToSend:
			if silent[o] == nil {
				order = append(order, o)
			}
			silent[o] = append(silent[o], i)
		}
	}
	var doubts []string
	for _, o := range order {
		if posting[o] {
			continue
		}
		port := findPortReport(ports, o.port)
		if port == nil || port.PortSent >= 0 && port.PortSent+max(port.PortRecv, 0) < bypassLeast {
			continue
		}
		what := directLibrary(ctx, o.pid)
		if what != "" {
			for _, i := range silent[o] {
				queues[i].Bypass = true
			}
		}
		if text := bypassDoubt(port, len(silent[o]), o.pid, what); text != "" {
			doubts = append(doubts, text)
		}
	}
	return doubts
}

func bypassDoubt(port *PortReport, silent int, pid uint32, what string) string {
	noun := fmt.Sprintf("%d queue pairs", silent)
	if silent == 1 {
		noun = "1 queue pair"
	}
	noun += fmt.Sprintf(" of pid %d on %s port %d", pid, port.Device, port.Port)
	moved := fmt.Sprintf("the port sent %d and received %d bytes", max(port.PortSent, 0), max(port.PortRecv, 0))
	switch {
	case what != "" && port.PortSent >= 0:
		return fmt.Sprintf("traffic bypasses the verbs library (%s): %s never posted through it, yet %s", what, noun, moved)
	case what != "":
		return fmt.Sprintf("traffic may bypass the verbs library (%s): %s never posted through it, and the port has no counters to tell", what, noun)
	case port.PortSent >= 0:
		return fmt.Sprintf("%s never posted, yet %s: another process, the passive side of one-sided operations, or code that writes its own work queue entries", noun, moved)
	}
	return ""
}

func directLibrary(ctx *event.Context, pid uint32) string {
	for _, library := range directLibraries {
		for i := range ctx.Mappings {
			m := &ctx.Mappings[i]
			if m.PID == pid && strings.HasPrefix(path.Base(m.Path), library.prefix) {
				return library.what
			}
		}
	}
	return ""
}

func findPortReport(ports []PortReport, name portName) *PortReport {
	for i := range ports {
		if ports[i].Device == name.device && ports[i].Port == int(name.number) {
			return &ports[i]
		}
	}
	return nil
}
