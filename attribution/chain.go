package attribution

import (
	"cmp"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// compareChains orders chains by what they are, none first.
func compareChains(a, b *event.Chain) int {
	if a == nil || b == nil || a == b {
		return cmp.Compare(links(a), links(b))
	}
	c := cmp.Compare(a.N, b.N)
	for i := 0; c == 0 && i < links(a); i++ {
		x, y := &a.Links[i], &b.Links[i]
		c = cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Vec, y.Vec), strings.Compare(string(x.Name[:]), string(y.Name[:])))
	}
	return c
}

func links(c *event.Chain) int {
	if c == nil {
		return 0
	}
	return min(int(c.N), len(c.Links))
}

// chain names what led to a culprit, for its name to follow: "virtio3-input.0
// (irq 27) > NET_RX softirq > ". The line of a threaded handler is named once.
func (n *naming) chain(c *event.Chain, name string) string {
	var b strings.Builder
	last := ""
	for i := range links(c) {
		l := &c.Links[i]
		who := interruptCulprit(l.Kind, l.Vec, [16]byte{})
		text := commText(l.Name[:])
		if who.kind != nobody {
			text = n.one(&who)
		}
		if last != "" && text != last {
			b.WriteString(last + " > ")
		}
		last = text
	}
	if last != "" && last != name {
		b.WriteString(last + " > ")
	}
	return b.String() + name
}
