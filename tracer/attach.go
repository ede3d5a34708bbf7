package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/place"
)

// links owns everything attached. Closing takes long for perf-style uprobes
// (a hundred milliseconds each), so it is done in parallel.
type links struct {
	mu  sync.Mutex
	all []link.Link
}

func (l *links) add(more ...link.Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, more...)
}

// drop closes some of them now; those that close took are closed by that.
func (l *links) drop(some ...link.Link) error {
	wanted := make(map[link.Link]bool, len(some))
	for _, one := range some {
		wanted[one] = true
	}
	var ours []link.Link
	l.mu.Lock()
	l.all = slices.DeleteFunc(l.all, func(one link.Link) bool {
		if wanted[one] {
			ours = append(ours, one)
		}
		return wanted[one]
	})
	l.mu.Unlock()
	return closeAll(ours)
}

func (l *links) close() error {
	l.mu.Lock()
	all := l.all
	l.all = nil
	l.mu.Unlock()
	return closeAll(all)
}

// closersMost links are closed at a time: each waits in the kernel, for some 50 ms, and
// takes one of the process's threads for that.
const closersMost = 64

func closeAll(all []link.Link) error {
	errs := make([]error, len(all))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(all), closersMost) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				errs[i] = all[i].Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// site is one place of one library where a program is to run.
type site struct {
	fn     locate.Function
	offset uint64 // of the probe in the file
	cookie uint64
	number uint32 // what its hits are counted by
	// stepped: the kernel single-steps the instruction there
	stepped bool
}

// batch is what one uprobe_multi link holds: the sites of one program in one library.
type batch struct {
	library *locate.Library
	program string
	ret     bool
	sites   []site
	slot    *pollSlot // of a poll function: its links are taken out one by one
	// setters: of builders, which are taken out once the WQEs tell the same
	setters *buildSlot
	links   []link.Link
}

// attacher puts probes on the functions of one process, each once.
type attacher struct {
	kernel *kernel
	links  *links
	pid    int
	done   map[siteKey]bool
	probes []siteReport
	polls  []*pollSlot
	builds []*buildSlot
	data   []*batch // of the probes of posts and polls, which pauses take out
	// batches are all that were attached.
	batches []*batch
	// functions are those that were to be attached: a forked child has the same.
	functions locate.Functions
	host      locate.Host
}

type siteKey struct {
	dev, ino, offset uint64
	program          string
}

func newAttacher(k *kernel, l *links, pid int, host locate.Host) *attacher {
	return &attacher{kernel: k, links: l, pid: pid, done: map[siteKey]bool{}, host: host}
}

// attach places probes on those of fns that have none yet, and reports how
// many are new. Verbs without a plan are left alone. A failure at one function
// leaves the others in place; it is told in the probes and in the error.
func (a *attacher) attach(fns locate.Functions) (added int, err error) {
	var errs []error
	a.functions = append(a.functions, fns...)
	for lib, todo := range byLibrary(fns) {
		n, err := a.attachLibrary(lib, todo)
		added += n
		if err != nil && gone(a.pid) {
			return added, fmt.Errorf("place probes in process %d: %w", a.pid, errEnded)
		}
		if errors.Is(err, errNoReturnProbes) {
			return added, err // the same of every library
		}
		errs = append(errs, err)
	}
	return added, errors.Join(errs...)
}

// errEnded: a process was there when it was examined.
var errEnded = errors.New("it has ended meanwhile")

// errNoReturnProbes: a probe at a function's entry is worth nothing without the
// one at its return.
var errNoReturnProbes = errors.New("its posts and polls are seen by return probes, which must not be used on it")

// noReturnProbes is the error of a process that a return probe could kill: nil
// for others.
func noReturnProbes(pid int, why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("trace process %d: %w: %s", pid, errNoReturnProbes, why)
}

func byLibrary(fns locate.Functions) map[*locate.Library]locate.Functions {
	out := map[*locate.Library]locate.Functions{}
	for _, fn := range fns {
		if _, planned := verbProbes[fn.Verb]; planned && fn.Library != nil {
			out[fn.Library] = append(out[fn.Library], fn)
		}
	}
	return out
}

func (a *attacher) attachLibrary(lib *locate.Library, fns locate.Functions) (int, error) {
	if len(a.plan(lib, fns, nil)) == 0 {
		return 0, nil
	}
	// Asked each time: children were not examined, and a filter can come late.
	if err := a.returnProbesAllowed(); err != nil {
		return 0, err
	}
	n, err := a.attachFile(lib, func(file *os.File) []*batch { return a.plan(lib, fns, file) })
	if err == nil || len(fns) == 1 || outOfReach(err) {
		return n, err
	}
	// One function can spoil it for all: each gets its own chance.
	var errs []error
	n = 0
	for _, fn := range fns {
		one, err := a.attachFile(lib, func(file *os.File) []*batch { return a.plan(lib, locate.Functions{fn}, file) })
		n += one
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// outOfReach: no function of that library can be attached, since the process
// or its mapping of the library is gone.
func outOfReach(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist)
}

// attachFile attaches what plan makes of a library's code, all or none.
func (a *attacher) attachFile(lib *locate.Library, plan func(*os.File) []*batch) (int, error) {
	file, ex, err := openLibrary(lib, a.pid)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	batches := plan(file)
	a.kernel.sites.number(batches)
	n, err := a.attachAll(ex, batches)
	a.report(batches, err)
	return n, err
}

// openLibrary opens the code of a process's library. The file is to be held open:
// the mapping that leads to it may be gone the next moment.
func openLibrary(lib *locate.Library, pid int) (*os.File, *link.Executable, error) {
	file, err := lib.OpenFile()
	if err != nil {
		return nil, nil, fmt.Errorf("open %s of process %d: %w", lib.Path, pid, err)
	}
	ex, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read %s of process %d: %w", lib.Path, pid, err), file.Close())
	}
	return file, ex, nil
}

// returnProbesAllowed asks for what forbids return probes on the process now.
func (a *attacher) returnProbesAllowed() error {
	return noReturnProbes(a.pid, locate.NoReturnProbes(a.pid, a.host))
}

// attachAll attaches all batches or none: an entry whose return isn't seen
// stays open, a return without its entry costs a trap for nothing.
func (a *attacher) attachAll(ex *link.Executable, batches []*batch) (int, error) {
	var made []link.Link
	n := 0
	for _, b := range batches {
		if a.kernel.paused && b.pauses() {
			n += len(b.sites) // goOn puts them in
			continue
		}
		ls, err := a.attachBatch(ex, b)
		b.links = ls
		made = append(made, ls...)
		if err != nil {
			for _, l := range made {
				err = errors.Join(err, l.Close())
			}
			return 0, err
		}
		n += len(b.sites)
	}
	for _, b := range batches {
		for _, s := range b.sites {
			a.done[a.key(b, s)] = true
		}
		if b.slot != nil && b.links != nil {
			b.slot.links[b.program] = b.links
		}
	}
	a.links.add(made...)
	a.keep(batches)
	return n, nil
}

// plan groups the programs that fns still need. With code nil it only says
// whether there are any.
func (a *attacher) plan(lib *locate.Library, fns locate.Functions, code *os.File) []*batch {
	type groupKey struct {
		program string
		slot    *pollSlot
		setters *buildSlot
	}
	groups := map[groupKey]*batch{}
	var order []*batch
	for _, fn := range fns {
		probe := verbProbes[fn.Verb]
		slot, build := a.pollSlot(lib, fn), a.buildSlot(lib, fn)
		s := site{fn: fn, offset: fn.Offset, cookie: probe.cookie | a.kernel.layouts.cookie(lib) | slot.cookie() | build.cookie()}
		if !isSetter(fn.Verb) {
			build = nil
		} else if build.reads() {
			continue
		}
		if code != nil {
			var past uint64
			past, s.stepped = entryOffset(code, fn)
			s.offset += past
			if s.stepped && fn.Verb == locate.ReqNotifyCQ {
				s.cookie |= armStepped
			}
		}
		for _, want := range []struct {
			program string
			ret     bool
		}{{probe.enter, false}, {probe.exit, true}} {
			if want.program == "" {
				continue
			}
			group := groupKey{want.program, slot, build}
			b := groups[group]
			if b == nil {
				b = &batch{library: lib, program: want.program, ret: want.ret, slot: slot, setters: build}
			}
			if a.done[a.key(b, s)] || b.has(s) {
				continue
			}
			b.sites = append(b.sites, s)
			if groups[group] == nil {
				groups[group] = b
				order = append(order, b)
			}
		}
	}
	slices.SortStableFunc(order, byTurn)
	return order
}

func byTurn(x, y *batch) int { return cmp.Compare(x.turn(), y.turn()) }

// turn is when a batch is attached, among others. In a process that runs, what
// comes first is hit while the rest is still missing. So returns come first: one
// without its entry is ignored. The start of a bracket of builders comes last:
// without it they are ignored, and once it is seen all of them are. A poll whose
// entry was seen has to hit the site that is tried.
func (b *batch) turn() int {
	switch {
	case b.ret, b.slot != nil && b.program == b.slot.site():
		return 0
	case b.program == bpf.RdmaProgBuildStart:
		return 2
	}
	return 1
}

func (b *batch) has(s site) bool {
	return slices.ContainsFunc(b.sites, func(o site) bool { return o.fn.Offset == s.fn.Offset })
}

func (a *attacher) key(b *batch, s site) siteKey {
	return siteKey{b.library.Dev, b.library.Ino, s.fn.Offset, b.program}
}

// entryOffset is where past a function's entry the probe goes, and whether the
// instruction there is single-stepped; 0 when its code cannot be read or decoded:
// the entry is always a boundary.
func entryOffset(file *os.File, fn locate.Function) (past uint64, stepped bool) {
	s, err := entrySite(file, fn)
	if err != nil {
		return 0, true
	}
	return s.Offset, !s.Emulated
}

// entrySite is the place of the probe at a function's entry, and why there.
func entrySite(file *os.File, fn locate.Function) (place.Site, error) {
	code := make([]byte, 64)
	n, err := file.ReadAt(code, int64(fn.Offset))
	if n == 0 && err != nil {
		return place.Site{}, fmt.Errorf("its code cannot be read: %w", err)
	}
	if fn.Size > 0 && uint64(n) > fn.Size {
		n = int(fn.Size)
	}
	return place.Entry(machine, code[:n])
}

// attachBatch makes one link for all sites where the kernel can, else one for
// each; all or none.
func (a *attacher) attachBatch(ex *link.Executable, b *batch) ([]link.Link, error) {
	prog := a.kernel.prog(b.program)
	if prog == nil {
		return nil, fmt.Errorf("attach %s: the program is not loaded", b.program)
	}
	if a.kernel.multi {
		l, err := attachMulti(ex, b, prog, a.pid)
		if err != nil {
			return nil, fmt.Errorf("attach %s to %s of process %d: %w", b.program, b.library.Path, a.pid, explainRefusal(err, a.host))
		}
		return []link.Link{l}, nil
	}
	var made []link.Link
	for _, s := range b.sites {
		l, err := attachSingle(ex, b, s, prog, a.pid)
		if err != nil {
			for _, m := range made {
				err = errors.Join(err, m.Close())
			}
			return nil, fmt.Errorf("attach %s to %s+%#x of process %d: %w", b.program, b.library.Path, s.offset, a.pid, explainRefusal(err, a.host))
		}
		made = append(made, l)
	}
	return made, nil
}

func attachMulti(ex *link.Executable, b *batch, prog *ebpf.Program, pid int) (link.Link, error) {
	opts := &link.UprobeMultiOptions{PID: uint32(pid)}
	for _, s := range b.sites {
		opts.Addresses = append(opts.Addresses, s.offset)
		opts.Cookies = append(opts.Cookies, s.cookie)
	}
	if b.ret {
		return ex.UretprobeMulti(nil, prog, opts)
	}
	return ex.UprobeMulti(nil, prog, opts)
}

func attachSingle(ex *link.Executable, b *batch, s site, prog *ebpf.Program, pid int) (link.Link, error) {
	opts := &link.UprobeOptions{Address: s.offset, PID: pid, Cookie: s.cookie}
	if b.ret {
		return ex.Uretprobe("", prog, opts)
	}
	return ex.Uprobe("", prog, opts)
}

// siteReport is what came of one site.
type siteReport struct {
	key     siteKey
	probe   event.Probe
	numbers []uint32 // of every attachment
	hits    uint64   // of those that were taken out when the process had ended
	stepped bool
}

// report keeps what came of the batches' sites for the Context; a later try
// of the same site takes the place of an earlier one.
func (a *attacher) report(batches []*batch, err error) {
	for _, b := range batches {
		for _, s := range b.sites {
			p := event.Probe{
				Name: s.name(), Kind: "uprobe", Library: b.library.Path, BuildID: b.library.BuildID,
				Offset: s.offset, Source: s.fn.Source, PID: uint32(a.pid),
			}
			if b.ret {
				p.Kind = "uretprobe"
			}
			if err != nil {
				p.Error = probeError(err)
			}
			r := siteReport{key: a.key(b, s), probe: p, numbers: []uint32{s.number}, stepped: s.stepped}
			i := slices.IndexFunc(a.probes, func(o siteReport) bool { return o.key == r.key })
			if i < 0 {
				a.probes = append(a.probes, r)
			} else {
				r.numbers = append(a.probes[i].numbers, s.number)
				a.probes[i] = r
			}
		}
	}
}

// probeError is what is said of a probe that could not be placed.
func probeError(err error) string { return strings.ToValidUTF8(err.Error(), "\uFFFD") }

func (s site) name() string {
	if s.fn.Verb == locate.VerbNone {
		return "dynamic linker"
	}
	return s.fn.Verb.String()
}
