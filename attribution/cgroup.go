package attribution

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/event"
)

// Cgroup is the cgroup of version 2 that a culprit was in when it was seen last.
// It is the zero value where there is no such thing, or nothing is known.
type Cgroup struct {
	// Name is its path: "/system.slice/backup.service", or "(removed, id 4711)" of
	// one that was gone before it could be looked up.
	Name string
	// Apart: no target is in it, and it is not the root, where what belongs to
	// nobody is. Then its name tells more than the process's does.
	Apart bool
}

func (n *naming) nameCgroups(ctx *event.Context) {
	n.cgroups, n.own = make(map[uint64]string), make(map[uint64]bool)
	for i := range ctx.Cgroups {
		c := &ctx.Cgroups[i]
		if n.cgroups[c.ID] = validText(c.Path); c.Path == "" {
			n.cgroups[c.ID] = fmt.Sprintf("(removed, id %d)", c.ID)
		}
	}
	for i := range ctx.Targets {
		if id := ctx.Targets[i].CgroupID; id != 0 {
			n.own[id] = true
		}
	}
}

// cgroup by its id.
func (n *naming) cgroup(id uint64) Cgroup {
	name := n.cgroups[id]
	return Cgroup{Name: name, Apart: name != "" && name != "/" && len(n.own) > 0 && !n.own[id]}
}

// oneOf the cgroups of culprits that are named the same, in whatever order.
func (n *naming) oneOf(c Cgroup, id uint64) Cgroup {
	if other := n.cgroup(id); other.Name > c.Name {
		return other
	}
	return c
}
