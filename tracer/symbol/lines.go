package symbol

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"slices"
)

// maxDebugInfo bounds the DWARF sections of one file: beyond it, reading them
// takes the seconds and the memory that a profiler beside a job must not take.
const maxDebugInfo = 16 << 20

// debugSections are what lines and inlined calls need of DWARF 4 and 5.
var debugSections = []string{
	".debug_abbrev", ".debug_info", ".debug_line", ".debug_ranges", ".debug_str", // of DWARF 4
	".debug_addr", ".debug_line_str", ".debug_rnglists", ".debug_str_offsets",
}

// debugInfo finds source lines and inlined calls in DWARF.
type debugInfo struct {
	data  *dwarf.Data
	size  int                     // of .debug_info
	units []span                  // compilation units, by address
	subs  map[dwarf.Offset][]span // per unit: subprograms, by address
}

// span is an address range and the entry that describes it.
type span struct {
	low, high uint64
	entry     dwarf.Offset
}

// place is a function and the line in it.
type place struct {
	name string // linkage name if there is one; empty: unknown
	file string
	line int
}

// openDebugInfo reads the DWARF of a file; nil if it has none. Its size is taken
// from the budget.
func openDebugInfo(e *elf.File, left *budget) (d *debugInfo, err error) {
	var size uint64
	for _, name := range debugSections {
		if s := e.Section(name); s != nil && s.Type != elf.SHT_NOBITS {
			size += min(s.Size, 1<<40)
		}
	}
	if s := e.Section(".debug_info"); s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if size > maxDebugInfo || size > left.debug {
		return nil, fmt.Errorf("no source lines: %d MB of debug information is too much to read", size>>20)
	}
	left.debug -= size
	defer func() {
		if p := recover(); p != nil {
			d, err = nil, fmt.Errorf("read debug information: %v", p)
		}
	}()
	data, err := readDWARF(e)
	if err != nil {
		return nil, fmt.Errorf("read debug information: %w", err)
	}
	return newDebugInfo(data, int(e.Section(".debug_info").Size)), nil
}

// newDebugInfo indexes the compilation units.
func newDebugInfo(data *dwarf.Data, size int) *debugInfo {
	d := &debugInfo{data: data, size: size, subs: map[dwarf.Offset][]span{}}
	w := d.walk(0)
	for {
		e := w.next()
		if e == nil {
			break // units after a damaged one are not found
		}
		if e.Tag == dwarf.TagCompileUnit {
			d.units = d.appendSpans(d.units, e)
		}
		w.SkipChildren()
	}
	sortSpans(d.units)
	return d
}

// walker reads entries in order. Siblings may be linked in a circle: an entry
// takes two bytes at least, which bounds how many there are.
type walker struct {
	*dwarf.Reader
	left int
}

func (d *debugInfo) walk(from dwarf.Offset) *walker {
	r := d.data.Reader()
	r.Seek(from)
	return &walker{r, d.size / 2}
}

// next returns the next entry, nil at the end or where there is damage.
func (w *walker) next() *dwarf.Entry {
	if w.left == 0 {
		return nil
	}
	w.left--
	e, err := w.Next()
	if err != nil {
		return nil
	}
	return e
}

// readDWARF reads the sections. elf.File.DWARF would read all that there are.
func readDWARF(e *elf.File) (*dwarf.Data, error) {
	text := map[string][]byte{}
	for _, name := range debugSections {
		s := e.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		b, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", name, err)
		}
		text[name] = b
	}
	data, err := dwarf.New(text[".debug_abbrev"], nil, nil, text[".debug_info"],
		text[".debug_line"], nil, text[".debug_ranges"], text[".debug_str"])
	if err != nil {
		return nil, err
	}
	for _, name := range debugSections[5:] {
		if text[name] == nil {
			continue
		}
		if err := data.AddSection(name, text[name]); err != nil {
			return nil, fmt.Errorf("section %s: %w", name, err)
		}
	}
	return data, nil
}

// appendSpans appends the address ranges of an entry.
func (d *debugInfo) appendSpans(to []span, e *dwarf.Entry) []span {
	ranges, err := d.data.Ranges(e)
	if err != nil {
		return to
	}
	for _, r := range ranges {
		if r[0] != 0 && r[0] < r[1] { // 0: the linker dropped it
			to = append(to, span{r[0], r[1], e.Offset})
		}
	}
	return to
}

func sortSpans(s []span) {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.low, b.low) })
}

// covering returns the entry of the last span that begins at or before addr,
// if it covers it.
func covering(s []span, addr uint64) (dwarf.Offset, bool) {
	i, _ := slices.BinarySearchFunc(s, addr+1, func(e span, a uint64) int { return cmp.Compare(e.low, a) })
	if i == 0 || addr >= s[i-1].high {
		return 0, false
	}
	return s[i-1].entry, true
}

// at returns the functions at an address, the innermost inlined one first, the
// one that really is there last; nil if the address is not described.
func (d *debugInfo) at(vaddr uint64) (places []place) {
	defer func() {
		if recover() != nil { // debug/dwarf on hostile input
			places = nil
		}
	}()
	unit, ok := covering(d.units, vaddr)
	if !ok {
		return nil
	}
	cu := d.walk(unit).next()
	if cu == nil {
		return nil
	}
	file, line, files := d.line(cu, vaddr)
	chain := d.chain(cu, vaddr)
	if len(chain) == 0 {
		if file == "" {
			return nil
		}
		return []place{{file: file, line: line}}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		places = append(places, place{name: d.name(chain[i], 0), file: file, line: line})
		file, line = callSite(chain[i], files)
	}
	return places
}

// line looks an address up in the line table of a unit.
func (d *debugInfo) line(cu *dwarf.Entry, vaddr uint64) (file string, line int, files []*dwarf.LineFile) {
	lr, err := d.data.LineReader(cu)
	if lr == nil || err != nil {
		return "", 0, nil
	}
	// LineReader.SeekPC wants one ascending sequence; units have one for each
	// section of code.
	var before, now dwarf.LineEntry
	before.EndSequence = true
	for lr.Next(&now) == nil {
		if !before.EndSequence && before.Address <= vaddr && vaddr < now.Address {
			if before.File != nil {
				file, line = before.File.Name, before.Line
			}
			break
		}
		before = now
	}
	return file, line, lr.Files()
}

// callSite is where an inlined subroutine was called.
func callSite(e *dwarf.Entry, files []*dwarf.LineFile) (file string, line int) {
	n, _ := e.Val(dwarf.AttrCallFile).(int64)
	l, _ := e.Val(dwarf.AttrCallLine).(int64)
	if n >= 0 && n < int64(len(files)) && files[n] != nil {
		file = files[n].Name
	}
	return file, int(l)
}

// chain is the subprogram that covers an address and the inlined subroutines
// inside it that do, outermost first.
func (d *debugInfo) chain(cu *dwarf.Entry, vaddr uint64) []*dwarf.Entry {
	sub, ok := covering(d.subprograms(cu), vaddr)
	if !ok {
		return nil
	}
	w := d.walk(sub)
	e := w.next()
	if e == nil {
		return nil
	}
	chain := []*dwarf.Entry{e}
	if !e.Children {
		return chain
	}
	for depth := 1; depth > 0; {
		e := w.next()
		if e == nil {
			break
		}
		switch {
		case e.Tag == 0:
			depth--
		case !d.enters(e, vaddr):
			w.SkipChildren()
		default:
			if e.Tag == dwarf.TagInlinedSubroutine {
				chain = append(chain, e)
			}
			if e.Children {
				depth++
			}
		}
	}
	return chain
}

// enters says whether what covers the address may be below an entry.
func (d *debugInfo) enters(e *dwarf.Entry, vaddr uint64) bool {
	if e.Tag != dwarf.TagInlinedSubroutine && e.Tag != dwarf.TagLexDwarfBlock {
		return false
	}
	ranges, err := d.data.Ranges(e)
	if err != nil {
		return false
	}
	if len(ranges) == 0 {
		return e.Tag == dwarf.TagLexDwarfBlock
	}
	return slices.ContainsFunc(ranges, func(r [2]uint64) bool { return vaddr >= r[0] && vaddr < r[1] })
}

// subprograms indexes the functions of a unit.
func (d *debugInfo) subprograms(cu *dwarf.Entry) []span {
	if s, ok := d.subs[cu.Offset]; ok {
		return s
	}
	var subs []span
	w := d.walk(cu.Offset)
	for first := true; ; first = false {
		e := w.next()
		if e == nil || (e.Tag == dwarf.TagCompileUnit && !first) {
			break
		}
		switch e.Tag {
		case dwarf.TagSubprogram:
			subs = d.appendSpans(subs, e)
			w.SkipChildren()
		case dwarf.TagCompileUnit, dwarf.TagNamespace, dwarf.TagModule, 0:
		default:
			w.SkipChildren()
		}
	}
	sortSpans(subs)
	d.subs[cu.Offset] = subs
	return subs
}

// maxOrigins bounds the references from an inlined subroutine to its abstract
// origin to its declaration.
const maxOrigins = 8

// attrMIPSLinkageName is what DWARF before version 4 called the linkage name.
const attrMIPSLinkageName dwarf.Attr = 0x2007

// name is the name of a function's entry, followed to where it is declared.
func (d *debugInfo) name(e *dwarf.Entry, depth int) string {
	for _, attr := range []dwarf.Attr{dwarf.AttrLinkageName, attrMIPSLinkageName} {
		if s, ok := e.Val(attr).(string); ok {
			return s
		}
	}
	if depth < maxOrigins {
		for _, attr := range []dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
			off, ok := e.Val(attr).(dwarf.Offset)
			if !ok {
				continue
			}
			if o := d.walk(off).next(); o != nil {
				if s := d.name(o, depth+1); s != "" {
					return s
				}
			}
		}
	}
	s, _ := e.Val(dwarf.AttrName).(string)
	return s
}
