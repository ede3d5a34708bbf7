package tracer

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/symbol"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// stackKeeper unwinds stack records as they come, as the target's memory map of now
// is the one they belong to: those of posting sites beside the reader.
type stackKeeper struct {
	store    *image.Store
	unwinder *unwind.Unwinder
	symbols  *symbol.Symbolizer
	threads  *threadStacks
	sites    *sites

	once    sync.Once
	mu      sync.Mutex
	pending chan stackRecord
	done    chan struct{}
	stacks  map[uint64]rawStack
	dropped uint64
}

// stackRecord is a copy of a record's content.
type stackRecord struct {
	id       uint64
	time     uint64 // ns
	site     bpf.RdmaSiteKey
	snapshot unwind.Snapshot
}

type rawStack struct {
	pid       uint32
	addrs     []uint64
	truncated bool
}

// maxPendingStacks bounds the memory of stacks that wait: 16 KiB each.
const maxPendingStacks = 512

func newStackKeeper(sites *sites) (*stackKeeper, error) {
	u, err := unwind.New(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	s := &stackKeeper{
		store: image.NewStore(), unwinder: u, sites: sites, stacks: map[uint64]rawStack{},
		pending: make(chan stackRecord, maxPendingStacks), done: make(chan struct{}),
	}
	s.symbols = symbol.New(s.store)
	s.threads = newThreadStacks(s)
	go s.run()
	return s, nil
}

// take copies a stack record; false: it is another kind of record.
func (s *stackKeeper) take(raw []byte) bool {
	if recordKind(raw) != bpf.RdmaRecordKindRECORD_STACK {
		return false
	}
	var r bpf.RdmaStackRecord
	head := int(unsafe.Offsetof(r.Bytes)) // not its size: Go pads a struct that ends in an empty array
	if !load(raw, &r) || int(r.Size) > len(raw)-head {
		s.drop()
		return true
	}
	// The bytes begin at the stack pointer rounded down to a chunk.
	skip := r.Sp % stackChunk
	bytes := raw[head : head+int(r.Size)]
	bytes = bytes[min(skip, uint64(len(bytes))):]
	rec := stackRecord{id: r.Id, time: r.H.Time, site: r.Site, snapshot: unwind.Snapshot{
		IP: r.Ip, SP: r.Sp, FP: r.Fp, Regs: r.Regs, Stack: bytes,
	}}
	if r.H.Flags&stackOfThread != 0 {
		s.threads.take(&rec)
		return true
	}
	rec.snapshot.Stack = slices.Clone(bytes)
	select {
	case s.pending <- rec:
	default:
		s.drop()
	}
	return true
}

// As in bpf/stack.bpf.h and event.h.
const (
	stackChunk    = 1024
	stackOfThread = 1
)

func (s *stackKeeper) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped++
}

func (s *stackKeeper) run() {
	defer close(s.done)
	for rec := range s.pending {
		space := s.store.Space(rec.site.Pid)
		u := s.unwindIn(space, &rec.snapshot)
		if u.stop == unwind.StopUnmapped || space == nil {
			// Something was mapped since.
			if newer, err := s.store.Snapshot(rec.site.Pid); err == nil {
				u = s.unwindIn(newer, &rec.snapshot)
			}
		}
		s.sites.addPost(&rec, u.at)
		s.keep(rec.id, u.raw(rec.site.Pid))
	}
}

func (s *stackKeeper) keep(id uint64, raw rawStack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stacks[id] = raw
}

// unwound is what became of a stack.
type unwound struct {
	addrs, at []uint64 // as of unwind.UnwindWith
	stop      unwind.Stop
}

func (u *unwound) raw(pid uint32) rawStack {
	return rawStack{pid: pid, addrs: u.addrs, truncated: u.stop != unwind.StopOutermost}
}

func (s *stackKeeper) unwindIn(space *image.Space, snap *unwind.Snapshot) (u unwound) {
	if space == nil {
		return unwound{addrs: []uint64{snap.IP}, stop: unwind.StopUnmapped}
	}
	u.addrs, u.at, u.stop = s.unwinder.UnwindWith(space, snap, nil, nil)
	return u
}

// watch reads the memory map of a process now, for when it is gone before its
// first stack is looked at.
func (s *stackKeeper) watch(pid int) {
	// That it cannot be read is told by the stacks that miss it.
	_, _ = s.store.Snapshot(uint32(pid))
}

// notes are sentences on stacks that are missing or lack names.
func (s *stackKeeper) notes() []string {
	out := slices.Concat(s.store.Notes(), s.symbols.Notes(), s.sites.notes())
	if note := s.threads.note(); note != "" {
		out = append(out, note)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		out = append(out, fmt.Sprintf("%d stacks came faster than they could be unwound, or were damaged", s.dropped))
	}
	return out
}

// stop ends the work after what is pending was done. It may be called again.
func (s *stackKeeper) stop() {
	s.once.Do(func() {
		close(s.pending)
		s.threads.stop()
	})
	<-s.done
}

// close frees the files.
func (s *stackKeeper) close() error {
	s.stop()
	return errors.Join(s.symbols.Close(), s.store.Close())
}

// nameVerbs names the functions of providers that have no symbols by the verb
// they carry out, as Debian's libmlx5 needs it.
func (s *stackKeeper) nameVerbs(fns locate.Functions) {
	for _, fn := range fns {
		if fn.Library.Role&locate.RoleProvider != 0 && fn.Verb != locate.VerbNone {
			s.symbols.Name(fn.Library.BuildID, fn.Library.Path, fn.Offset, providerName(fn.Library.Path)+": "+fn.Verb.String())
		}
	}
}

// providerName is what rdma-core calls a provider: libmlx5.so.1.24 and
// libmlx5-rdmav34.so are mlx5's.
func providerName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".so")
	name, _, _ = strings.Cut(name, "-rdmav")
	return strings.TrimPrefix(name, "lib")
}

// list symbolizes every stack. Call it after stop.
func (s *stackKeeper) list() []event.Stack {
	var out []event.Stack
	for id, raw := range s.stacks {
		out = append(out, event.Stack{
			ID: id, PID: raw.pid, Truncated: raw.truncated,
			Frames: s.symbols.Frames(raw.pid, raw.addrs, nil),
		})
	}
	return out
}
