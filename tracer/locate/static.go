package locate

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmatrace/rdmatrace/tracer/locate/code"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// Reasons why a provider's file does not tell its functions.
var (
	ErrArch    = errors.New("code of an architecture that is not understood")
	ErrSlots   = errors.New("verbs_set_ops is not understood")
	ErrNoTable = errors.New("no ops table found")
)

// target is a function that a table names: in the same file, or another's by
// name (providers put ibv_cmd_* of libibverbs into slots they do in the kernel).
type target struct {
	vaddr  uint64
	symbol string
}

// opsTable is a struct verbs_context_ops in a provider's data.
type opsTable struct {
	vaddr uint64
	how   string
	funcs map[Verb]target
}

// static adds what the library's file tells. Of a provider that no open device
// uses (used is false) only its own tables are read: every program has all
// installed providers mapped.
func (p *Process) static(l *library, used bool, c *collector) {
	l.exports(c)
	if l.Role&(RoleProvider|RoleVerbs) == 0 {
		return
	}
	verbs := p.verbsOf(l)
	if verbs == nil {
		c.note("%s is an RDMA provider, but the process has no libibverbs mapped that explains its tables", l.Path)
		return
	}
	if l.tables(verbs); l.failed != nil {
		if l.Role&RoleProvider != 0 {
			c.note("%s: its file does not tell its functions: %v", l.Path, l.failed)
		}
		return
	}
	for _, t := range l.provider {
		for v, at := range t.funcs {
			if at.symbol == "" && !l.dummies[at.vaddr] {
				c.add(l, v, at.vaddr, 0, t.how, false)
			} else if at.symbol != "" && used {
				l.imported(verbs, v, at.symbol, t.how, c)
			}
		}
	}
	if used {
		l.addBuilders(c)
	}
}

// imported adds a function of libibverbs that a provider's table names.
func (l *library) imported(verbs *library, v Verb, name, how string, c *collector) {
	s, err := verbs.file.Export(name)
	if err != nil {
		c.note("%s: %v is %s, which %s does not export", l.Path, v, name, verbs.Path)
		return
	}
	c.add(verbs, v, s.Vaddr, s.Size, how+" of "+filepath.Base(l.Path), false)
}

// addBuilders adds the functions that the provider's code puts into queue
// pairs and completion queues; it is read once.
func (l *library) addBuilders(c *collector) {
	if !l.followed {
		l.followed = true
		// Without them there are still those of live queue pairs.
		l.builders, _ = builders(l.file)
	}
	for _, b := range l.builders {
		c.add(l, b.verb, b.vaddr, 0, "code that fills it in", false)
	}
}

// verbsOf finds the libibverbs that a provider was linked with: the one that
// defines the private version it needs. With several copies of one version, the
// first serves: their tables are alike.
func (p *Process) verbsOf(l *library) *library {
	if l.Role&RoleVerbs != 0 {
		return l
	}
	needs, _ := l.file.Versions()
	var any *library
	for _, v := range p.libs {
		if v.Role&RoleVerbs == 0 {
			continue
		}
		_, defines := v.file.Versions()
		for _, n := range needs {
			if strings.HasPrefix(n, "IBVERBS_PRIVATE_") && slices.Contains(defines, n) {
				return v
			}
		}
		if any == nil {
			any = v
		}
	}
	return any
}

// tables reads the tables of a provider once.
func (l *library) tables(verbs *library) {
	if l.looked {
		return
	}
	l.looked = true
	slots, err := verbs.learn()
	if err != nil {
		l.failed = err
		return
	}
	if l.provider, l.failed = opsTables(l.file, slots); l.failed != nil || l.Role&RoleVerbs == 0 {
		return
	}
	// The fullest of libibverbs' own tables is that of its dummies. Others are
	// those of providers built into it.
	full := slices.MaxFunc(l.provider, func(a, b opsTable) int { return cmp.Compare(len(a.funcs), len(b.funcs)) })
	l.dummies = map[uint64]bool{}
	for _, t := range full.funcs {
		l.dummies[t.vaddr] = true
	}
}

// learn learns the slots of the tables from a libibverbs once.
func (l *library) learn() (slotMap, error) {
	if l.slots == nil && l.why == nil {
		m, err := learnSlots(l.file)
		l.slots, l.why = &m, err
	}
	return *l.slots, l.why
}

func machine(im *object.File) (code.Machine, error) {
	switch im.Arch {
	case object.ArchAMD64:
		return code.AMD64{}, nil
	case object.ArchARM64:
		return code.ARM64{}, nil
	}
	return nil, ErrArch
}

// follow follows the function that .eh_frame says begins at vaddr, or, where
// the file has no frames, the bytes behind it.
func follow(im *object.File, vaddr uint64) (*code.Func, error) {
	m, err := machine(im)
	if err != nil {
		return nil, err
	}
	if f, ok := im.FrameAt(vaddr); ok {
		return code.Follow(m, im, vaddr, f.End)
	}
	const enough = 16 << 10
	rest, err := im.Rest(vaddr, enough)
	if err != nil {
		return nil, err
	}
	return code.Follow(m, im, vaddr, vaddr+uint64(len(rest)))
}

// opsTables finds the tables that the provider im hands to verbs_set_ops.
func opsTables(im *object.File, slots slotMap) ([]opsTable, error) {
	calls, err := callsTo(im, "verbs_set_ops")
	if err != nil {
		return nil, err
	}
	var bases []uint64
	var shifts []int64 // of tables reached through a pointer: its distance
	for _, c := range calls {
		switch v := c.arg(1); v.Kind {
		case code.ValueConst, code.ValueChoice:
			for _, base := range c.fn.Constants(v) {
				bases = append(bases, uint64(base))
			}
		case code.ValueLoaded, code.ValueOther:
			shifts = append(shifts, v.Off)
		default:
			shifts = append(shifts, 0)
		}
	}
	slices.Sort(bases)
	bases = slices.Compact(bases)
	var tables []opsTable
	for _, b := range bases {
		t, err := readTable(im, slots, b)
		if err != nil {
			return nil, err
		}
		t.how = "ops table"
		tables = append(tables, t)
	}
	slices.Sort(shifts)
	for _, s := range slices.Compact(shifts) {
		found, err := pointedTables(im, slots, s)
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			if !slices.Contains(bases, t.vaddr) {
				tables = append(tables, t)
			}
		}
	}
	if len(tables) == 0 {
		return nil, fmt.Errorf("%d calls of verbs_set_ops: %w", len(calls), ErrNoTable)
	}
	return tables, nil
}

// readTable reads the slots of interest of the table at vaddr.
func readTable(im *object.File, slots slotMap, vaddr uint64) (opsTable, error) {
	relocs, err := im.Relocs()
	if err != nil {
		return opsTable{}, err
	}
	t := opsTable{vaddr: vaddr, funcs: map[Verb]target{}}
	for verb, off := range slots.at {
		r, ok := relocs[vaddr+uint64(off)]
		switch {
		case !ok:
		case r.Symbol != "" && r.Addend == 0:
			t.funcs[verb] = target{symbol: r.Symbol}
		default:
			t.funcs[verb] = target{vaddr: r.Addend}
		}
	}
	return t, nil
}

// pointedTables finds tables that no instruction names: a provider for several
// generations of a device keeps, in its list of devices, pointers to structures
// with a table inside (hns: struct hns_roce_u_hw, the table behind its version
// number). shift is the table's place in the structure, as the code adds it. A
// structure is believed if every word of its table is a function or empty, and
// the data path's three slots are filled.
func pointedTables(im *object.File, slots slotMap, shift int64) ([]opsTable, error) {
	relocs, err := im.Relocs()
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{}
	var out []opsTable
	for _, r := range relocs {
		base := r.Addend + uint64(shift)
		if r.Symbol != "" || seen[base] || !plausibleTable(im, relocs, slots, base) {
			continue
		}
		seen[base] = true
		t, err := readTable(im, slots, base)
		if err != nil {
			return nil, err
		}
		t.how = "ops table behind a pointer"
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b opsTable) int { return cmp.Compare(a.vaddr, b.vaddr) })
	return out, nil
}

func plausibleTable(im *object.File, relocs map[uint64]object.Reloc, slots slotMap, base uint64) bool {
	for _, v := range []Verb{PostSend, PostRecv, PollCQ} {
		if r, ok := relocs[base+uint64(slots.at[v])]; !ok || !isFunction(im, r) {
			return false
		}
	}
	b, err := im.Bytes(base, uint64(slots.size))
	if err != nil {
		return false
	}
	for off := int64(0); off < slots.size; off += 8 {
		if r, ok := relocs[base+uint64(off)]; ok && !isFunction(im, r) {
			return false
		} else if !ok && [8]byte(b[off:off+8]) != [8]byte{} {
			return false
		}
	}
	return true
}

// isFunction says whether a relocated word is the beginning of a function, or
// of one that another library exports.
func isFunction(im *object.File, r object.Reloc) bool {
	if r.Symbol != "" && r.Addend == 0 {
		return true
	}
	f, ok := im.FrameAt(r.Addend)
	return ok && f.Begin == r.Addend
}
