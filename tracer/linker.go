package tracer

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// linkerFunction is what dynamic linkers (glibc's, musl's) call for debuggers
// whenever the list of loaded objects changed, r_brk of <link.h>.
const linkerFunction = "_dl_debug_state"

// attachLinker probes the target's dynamic linker, so that a library loaded
// later is seen before its code runs. A program without one loads nothing.
func (a *attacher) attachLinker() error {
	base, err := linkerBase(a.pid)
	if err != nil || base == 0 {
		return err
	}
	maps, err := image.ReadMaps(uint32(a.pid))
	if err != nil {
		return err
	}
	var file *image.Mapping
	for i, m := range maps {
		if m.Start == base {
			file = &maps[i]
		}
		if file == nil || !m.Exec || m.Inode != file.Inode || m.Dev != file.Dev {
			continue
		}
		lib := &locate.Library{
			FileID: locate.FileID{Dev: m.Dev, Ino: m.Inode}, Path: m.Path,
			Open: fmt.Sprintf("/proc/%d/map_files/%x-%x", a.pid, m.Start, m.End),
		}
		return a.attachLinkerFile(lib)
	}
	return fmt.Errorf("find the dynamic linker of process %d: no mapping at %#x", a.pid, base)
}

func (a *attacher) attachLinkerFile(lib *locate.Library) error {
	offset, err := linkerOffset(lib.Open)
	if err != nil {
		return err
	}
	fn := locate.Function{Library: lib, Offset: offset, Source: "symbol " + linkerFunction}
	plan := func(*os.File) []*batch {
		b := &batch{library: lib, program: bpf.RdmaProgLibraryEnter, sites: []site{{fn: fn, offset: offset}}}
		if a.done[a.key(b, b.sites[0])] {
			return nil
		}
		return []*batch{b}
	}
	_, err = a.attachFile(lib, plan)
	return err
}

// linkerBase is AT_BASE of the auxiliary vector: where the linker is mapped; 0: there is none.
func linkerBase(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, fmt.Errorf("find the dynamic linker of process %d: %w", pid, err)
	}
	const atBase = 7
	for ; len(raw) >= 16; raw = raw[16:] {
		if binary.NativeEndian.Uint64(raw) == atBase {
			return binary.NativeEndian.Uint64(raw[8:]), nil
		}
	}
	return 0, nil
}

// linkerOffset is where in the linker's file its notice is.
func linkerOffset(path string) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read the dynamic linker: %w", err)
	}
	defer f.Close()
	syms, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the dynamic linker: %w", err)
	}
	for _, s := range syms {
		if s.Name != linkerFunction || s.Section == elf.SHN_UNDEF {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				return s.Value - p.Vaddr + p.Off, nil
			}
		}
	}
	return 0, fmt.Errorf("read the dynamic linker: it has no %s", linkerFunction)
}
