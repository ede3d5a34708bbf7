package locate

import (
	"fmt"
	"slices"

	"github.com/rdmatrace/rdmatrace/tracer/locate/code"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// contextOps are the members of ibv_context.ops that matter, by their offset
// in struct ibv_context. This is libibverbs' ABI: unchanged since rdma-core 12
// on every architecture (<infiniband/verbs.h>, struct ibv_context_ops).
var contextOps = map[Verb]int64{
	PollCQ: 96, ReqNotifyCQ: 104, PostSRQRecv: 168, PostSend: 208, PostRecv: 216,
}

// otherOps are further members that verbs_set_ops fills: with them the place
// of the ibv_context in the verbs_context is told beyond doubt (alloc_mw,
// bind_mw, dealloc_mw).
var otherOps = []int64{64, 72, 80}

// slotMap says where in a provider's struct verbs_context_ops a function is.
// That structure is private to rdma-core and has changed eleven times; the
// binary interface's version does not tell which one it is.
type slotMap struct {
	at     map[Verb]int64 // byte offset in the table
	size   int64          // bytes of the table, as far as verbs_set_ops reads it
	inside int64          // offset of the ibv_context in the verbs_context
}

// learnSlots derives the slot map from the code of libibverbs' own
// verbs_set_ops(verbs_context *, const verbs_context_ops *). For each member it
// copies the table's word at K to the context's word at D; D is known.
func learnSlots(verbs *object.File) (slotMap, error) {
	sym, err := verbs.Export("verbs_set_ops")
	if err != nil {
		return slotMap{}, err
	}
	f, err := follow(verbs, sym.Vaddr)
	if err != nil {
		return slotMap{}, fmt.Errorf("follow verbs_set_ops: %w", err)
	}
	copies := map[int64]int64{} // D: K
	var size int64
	for _, s := range f.Stores() {
		v := s.Value
		if v.Kind != code.ValueLoaded || v.Arg != 1 || v.Off != 0 {
			continue
		}
		size = max(size, v.Table+8)
		if s.Base.Kind == code.ValueArg && s.Base.Arg == 0 {
			d := s.Base.Off + s.Disp
			if k, seen := copies[d]; seen && k != v.Table {
				return slotMap{}, fmt.Errorf("%w: two slots for one member", ErrSlots)
			}
			copies[d] = v.Table
		}
	}
	return matchSlots(copies, size)
}

// matchSlots finds the one place of the ibv_context for which every member of
// its ops is among the words copied.
func matchSlots(copies map[int64]int64, size int64) (slotMap, error) {
	var found []slotMap
	for d := range copies {
		m := slotMap{at: map[Verb]int64{}, size: size, inside: d - contextOps[PostSend]}
		for v, off := range contextOps {
			if k, ok := copies[m.inside+off]; ok {
				m.at[v] = k
			}
		}
		whole := m.inside >= 0 && len(m.at) == len(contextOps)
		for _, off := range otherOps {
			_, ok := copies[m.inside+off]
			whole = whole && ok
		}
		if whole && alphabetic(m.at) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		return slotMap{}, fmt.Errorf("%w: %d words copied, %d places fit", ErrSlots, len(copies), len(found))
	}
	return found[0], nil
}

// alphabetic: the members of verbs_context_ops are kept in alphabetic order
// (rdma-core libibverbs/driver.h says so), those of ibv_context_ops are not.
func alphabetic(at map[Verb]int64) bool {
	order := []Verb{PollCQ, PostRecv, PostSend, PostSRQRecv, ReqNotifyCQ}
	return slices.IsSortedFunc(order, func(a, b Verb) int { return int(at[a] - at[b]) })
}

// knownSlots are the offsets of poll_cq in, and the bytes of, the tables of
// rdma-core 17 to 65, for a cross-check only: vendors' builds need not be
// among them.
var knownSlots = []struct {
	releases     string
	pollCQ, size int64
}{
	{"17", 304, 424}, {"18", 352, 480}, {"19", 376, 512}, {"20 to 21", 384, 520},
	{"22 to 27", 392, 528}, {"28 to 30", 400, 536}, {"31 to 32, 34", 416, 584}, {"33", 416, 576},
	{"35", 424, 600}, {"36 to 58", 424, 608}, {"59 to 61", 440, 632}, {"62 to 63", 448, 648},
	{"64", 464, 664}, {"65", 496, 744},
}

// release names the releases of rdma-core whose table looks like m, or "".
func (m slotMap) release() string {
	for _, k := range knownSlots {
		if m.at[PollCQ] == k.pollCQ && m.size == k.size {
			return k.releases
		}
	}
	return ""
}
