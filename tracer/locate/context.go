package locate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// errNot: what lies at an address is no such object.
var errNot = errors.New("no such object")

// Offsets in struct ibv_context, the same on all architectures
// (<infiniband/verbs.h>, rdma-core 12 to 64), and in struct ibv_device.
const (
	ctxDevice   = 0
	ctxQueryDev = 8  // ops._compat_query_device: ibv_query_device since rdma-core 33
	ctxQueryPrt = 16 // ops._compat_query_port: ibv_query_port since rdma-core 22
	ctxCmdFD    = 264
	ctxVectors  = 272
	devName     = 24 // char[64]: "mlx5_0"
	devDevName  = 88 // char[64]: "uverbs0"
	devEnd      = 152
)

// abiExtended is what ibv_context.abi_compat holds in every context that has a
// verbs_context around it (__VERBS_ABI_IS_EXTENDED).
const abiExtended = ^uint64(0)

// sizeof(struct verbs_context), the word before the ibv_context: 496 in
// rdma-core 12, 696 in 64.
const (
	minVerbsContext = 400
	maxVerbsContext = 4096
)

// found is a context with the memory it was read from.
type found struct {
	DeviceContext
	ops    map[Verb]uint64 // addresses in the process
	inside uint64          // offset of the ibv_context in its verbs_context
}

// contexts finds every ibv_context in the process's memory.
func (p *Process) contexts(ctx context.Context, s *sweep) ([]found, error) {
	var out []found
	want := p.openDevices()
	back := p.layout().abiCompat / 8
	err := s.each(ctx, func(addr uint64, words []uint64) bool {
		for i, w := range words {
			if w != abiExtended {
				continue
			}
			if uint64(i) > back { // the word before is in the piece: a cheap look at it
				if sz := words[uint64(i)-back-1]; sz < minVerbsContext || sz > maxVerbsContext {
					continue
				}
			}
			f, err := p.context(addr + uint64(i)*8 - back*8)
			if err == nil {
				out = append(out, f)
			}
		}
		return want > 0 && len(out) >= want
	})
	return out, err
}

// openDevices counts the open uverbs devices: each context has one. It is 0
// where they are not called so (an emulated device).
func (p *Process) openDevices() int {
	dir := fmt.Sprintf("/proc/%d/fd", p.pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "/dev/infiniband/uverbs") {
			n++
		}
	}
	return n
}

// context reads what may be an ibv_context and proves or refuses it. Whatever
// it is, its shape must be right (sizes, flags, functions in code); then either
// libibverbs' own two functions must be in their slots, or its device must
// have the name of one; and its descriptor must be open, or it was closed.
func (p *Process) context(addr uint64) (found, error) {
	l := p.layout()
	var buf [8 + 344]byte
	b := buf[:8+l.abiCompat+8]
	if err := p.mem.at(b, addr-8); err != nil {
		return found{}, err
	}
	sz := u64(b, 0)
	b = b[8:]
	if u64(b, l.abiCompat) != abiExtended || sz < minVerbsContext || sz > maxVerbsContext || sz%8 != 0 {
		return found{}, errNot
	}
	f := found{DeviceContext: DeviceContext{Addr: addr, CmdFD: int(int32(u32(b, ctxCmdFD)))},
		ops: map[Verb]uint64{}, inside: sz - l.abiCompat - 8}
	for v, off := range contextOps {
		f.ops[v] = u64(b, uint64(off))
	}
	for _, v := range []Verb{PostSend, PostRecv, PollCQ} {
		if _, ok := p.code(f.ops[v]); !ok {
			return found{}, errNot
		}
	}
	if n := int32(u32(b, ctxVectors)); n < 0 || n > 1<<16 {
		return found{}, errNot
	}
	own := p.exportedAt(u64(b, ctxQueryPrt), "ibv_query_port") || p.exportedAt(u64(b, ctxQueryDev), "ibv_query_device")
	named := p.device(u64(b, ctxDevice), &f)
	if !own && !named {
		return found{}, errNot
	}
	if !p.commandFD(&f) {
		return found{}, fmt.Errorf("ibv_context at %#x: its device is closed: %w", addr, errNot)
	}
	if at, ok := p.code(f.ops[PostSend]); ok {
		if l := p.at(at); l != nil {
			f.Provider = &l.Library
		}
	}
	return f, nil
}

// exportedAt says whether the process's address is the default version of a
// libibverbs function.
func (p *Process) exportedAt(addr uint64, name string) bool {
	at, ok := p.code(addr)
	if !ok || at.lib == nil || at.lib.Role&RoleVerbs == 0 {
		return false
	}
	s, err := at.lib.file.Export(name)
	return err == nil && s.Vaddr == at.vaddr
}

// device reads the names of an ibv_device.
func (p *Process) device(addr uint64, f *found) bool {
	var b [devEnd]byte
	if !p.mem.data(addr) || p.mem.at(b[:], addr) != nil {
		return false
	}
	name, ok1 := cString(b[devName:devDevName])
	dev, ok2 := cString(b[devDevName:])
	f.Device, f.DevName = name, dev
	return ok1 && ok2 && strings.HasPrefix(dev, "uverbs")
}

// cString is the text up to the NUL; ok if it is one of printable characters.
func cString(b []byte) (string, bool) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), i > 0
		}
		if c <= ' ' || c > '~' {
			return "", false
		}
	}
	return "", false
}

// commandFD says whether the context's descriptor is open, and, where it leads
// to a uverbs device, to that of the context's name. Contexts over VFIO have
// none (-1).
func (p *Process) commandFD(f *found) bool {
	if f.CmdFD < 0 {
		return f.CmdFD == -1
	}
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.pid, f.CmdFD))
	if err != nil {
		return false
	}
	if base := filepath.Base(to); strings.HasPrefix(to, "/dev/") && strings.HasPrefix(base, "uverbs") && f.DevName != "" {
		return base == f.DevName
	}
	return true
}

// at is the library at a place, one without a role if need be: a program may
// have a provider linked into it.
func (p *Process) at(at place) *library {
	if at.lib != nil {
		return at.lib
	}
	l, ok := p.plain[at.region.File]
	if !ok {
		if l = newLibrary(at.region, 0); l != nil {
			l.Build = newBuild(l.FileID, at.region.File)
		}
		p.plain[at.region.File] = l
	}
	if l != nil {
		l.Open = p.openPath(at.region)
	}
	return l
}

// contextFunctions adds the functions that a context's ops name.
func (p *Process) contextFunctions(f found, c *collector) {
	for v, addr := range f.ops {
		p.pointer(v, addr, "live context", c)
	}
}

// pointer adds the function that a pointer in the process leads to.
func (p *Process) pointer(v Verb, addr uint64, source string, c *collector) {
	at, ok := p.code(addr)
	if !ok {
		c.note("%v at %#x, by a %s, is in no mapped file", v, addr, source)
		return
	}
	l := p.at(at)
	if l == nil {
		return
	}
	if l.Role&RoleVerbs != 0 {
		l.tables(l) // to know its dummies
	}
	if !l.dummies[at.vaddr] {
		c.add(l, v, at.vaddr, 0, source, true)
	}
}
