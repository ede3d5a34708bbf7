package locate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// collector merges what the different ways find.
type collector struct {
	functions []Function
	notes     []string
}

func (c *collector) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(c.notes, n) {
		c.notes = append(c.notes, n)
	}
}

// add records that verb v is the function at vaddr of l. It refuses addresses
// at which a probe might break the process: those outside of code, and those
// that .eh_frame, where there is one, does not know as a beginning.
func (c *collector) add(l *library, v Verb, vaddr, size uint64, source string, live bool) {
	offset, err := l.file.CodeOffset(vaddr)
	if err != nil {
		c.note("%s: %v is at %#x by its %s, but no code is there", l.Path, v, vaddr, source)
		return
	}
	if frames, err := l.file.Frames(); err == nil && len(frames) > 0 {
		f, ok := l.file.FrameAt(vaddr)
		if ok && f.Begin != vaddr || !ok && size == 0 {
			c.note("%s: %v is at %#x by its %s, but no function begins there", l.Path, v, vaddr, source)
			return
		}
		if ok {
			size = f.End - f.Begin
		}
	}
	for i := range c.functions {
		f := &c.functions[i]
		if f.Library == &l.Library && f.Offset == offset && f.Verb == v {
			f.Live = f.Live || live
			if !slices.Contains(strings.Split(f.Source, "; "), source) {
				f.Source += "; " + source
			}
			return
		}
	}
	c.functions = append(c.functions, Function{
		Library: &l.Library, Verb: v, Offset: offset, Vaddr: vaddr, Size: size, Source: source, Live: live,
	})
}

// sorted is what was found, by verb, library and address.
func (c *collector) sorted() Functions {
	slices.SortStableFunc(c.functions, func(a, b Function) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Library.Path, b.Library.Path),
			cmp.Compare(a.Library.Ino, b.Library.Ino), cmp.Compare(a.Offset, b.Offset))
	})
	return c.functions
}
