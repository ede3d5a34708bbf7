package capture

import (
	"encoding/binary"

	"github.com/rdmatrace/rdmatrace/event"
)

// linkBytes is how long a link is: kind, vector, name.
const linkBytes = 1 + 4 + len(event.Comm{})

// chain passes what led to a waker, a name of as many links as there are. It
// reports whether that exists and is one.
func (f *fields) chain(v **event.Chain, guess *event.Chain) bool {
	i := f.n
	f.n++
	if !f.decode {
		if !sameChain(*v, guess) {
			f.mask |= 1 << i
			f.links = appendChain(f.links[:0], *v)
			f.values[i] = f.names.intern(f.links)
		}
		return true
	}
	*v = guess
	if f.mask&(1<<i) == 0 {
		return true
	}
	s, ok := f.names.lookup(f.values[i])
	if !ok {
		return false
	}
	*v, ok = f.chains.of(s)
	return ok
}

func sameChain(a, b *event.Chain) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func appendChain(b []byte, c *event.Chain) []byte {
	if c == nil {
		return b
	}
	for _, l := range c.Links[:min(int(c.N), len(c.Links))] {
		b = append(b, byte(l.Kind))
		b = binary.LittleEndian.AppendUint32(b, l.Vec)
		b = append(b, l.Name[:]...)
	}
	return b
}

// chainTable shares chains between events.
type chainTable map[string]*event.Chain

// of gives the chain that appendChain made s of; false if it made none of it.
func (t *chainTable) of(s []byte) (*event.Chain, bool) {
	if len(s) == 0 {
		return nil, true
	}
	if c := (*t)[string(s)]; c != nil {
		return c, true
	}
	if len(s)%linkBytes != 0 || len(s)/linkBytes > event.ChainMost {
		return nil, false
	}
	c := &event.Chain{N: uint8(len(s) / linkBytes)}
	for i := range c.Links[:c.N] {
		l := s[i*linkBytes:][:linkBytes]
		c.Links[i] = event.Link{Kind: event.InterruptKind(l[0]), Vec: binary.LittleEndian.Uint32(l[1:]), Name: event.Comm(l[5:])}
	}
	if *t == nil {
		*t = chainTable{}
	}
	if len(*t) < chainsMost {
		(*t)[string(s)] = c
	}
	return c, true
}

// chainsMost are shared; more than that are made one by one.
const chainsMost = 4096
