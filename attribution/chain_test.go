package attribution

import (
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

func chainOf(links ...event.Link) *event.Chain {
	c := &event.Chain{N: uint8(len(links))}
	copy(c.Links[:], links)
	return c
}

func TestChainNames(t *testing.T) {
	n := newNaming(&event.Context{Host: event.Host{Arch: "amd64"}, IRQs: []event.IRQ{{Line: 27, Name: "virtio3-input.0"}}})
	worker := event.Link{Name: event.Comm([]byte("wq:rxe_wq\x00\x00\x00\x00\x00\x00\x00"))}
	thread := event.Link{Kind: event.InterruptThread, Vec: 27}
	softirq := &culprit{kind: culpritSoftirq, id: 3}
	for _, c := range []struct {
		chain *event.Chain
		who   culprit
		want  string
	}{
		{nil, *softirq, "NET_RX softirq"},
		{chainOf(lineLink(27)), *softirq, "virtio3-input.0 (irq 27) > NET_RX softirq"},
		{chainOf(lineLink(27), softirqLink(3), worker), culprit{kind: culpritTask, id: 9, pid: 9, name: [16]byte(worker.Name)},
			"virtio3-input.0 (irq 27) > NET_RX softirq > wq:rxe_wq > wq:rxe_wq (pid 9)"},
		// A threaded handler and its line have one name.
		{chainOf(lineLink(27), thread), *softirq, "virtio3-input.0 (irq 27) > NET_RX softirq"},
		{chainOf(lineLink(27)), culprit{kind: culpritIRQ, id: 27}, "virtio3-input.0 (irq 27)"},
		{chainOf(lineLink(28)), *softirq, "irq 28 > NET_RX softirq"},
	} {
		c.who.chain = c.chain
		if got := n.culprit(&c.who); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestChainOrder(t *testing.T) {
	sorted := []*event.Chain{
		nil, chainOf(lineLink(1)), chainOf(lineLink(2)), chainOf(softirqLink(1)),
		chainOf(lineLink(1), softirqLink(3)), chainOf(lineLink(1), event.Link{Kind: event.InterruptSoftirq, Vec: 3, Name: event.Comm{'x'}}),
	}
	for i, a := range sorted {
		for j, b := range sorted {
			same := b
			if b != nil {
				same = chainOf(b.Links[:b.N]...)
			}
			if got, want := compareChains(a, same), compareInts(i, j); got != want {
				t.Errorf("chains %d and %d: %d, want %d", i, j, got, want)
			}
		}
	}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	if slices.SortFunc(shuffled, compareChains); !slices.Equal(shuffled, sorted) {
		t.Errorf("%v", shuffled)
	}
}

func compareInts(a, b int) int { return max(-1, min(1, a-b)) }
