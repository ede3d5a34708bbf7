//go:build amd64

package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// wc is as struct ibv_wc begins.
type wc struct {
	ID                                      uint64
	Status, Opcode, Vendor, Bytes, Imm, QPN uint32
	_                                       [4]uint32
}

// takes is a place where completions are consumed, and a function that begins with a
// CQ: as Go passes arguments, ax and bx have the first two, and di the fourth, where C
// has its first.
//
//go:noinline
func takes(cq, wc, _, first uintptr) uintptr { return cq ^ wc ^ first }

// A ring as soft-RoCE has them, in a map: the structure with its address and mask,
// and two of them.
const (
	ringMask, ringA, ringB          = 8, 256, 4096
	ringConsumer, ringEntries, size = 4, 64, 8192
	entryShift                      = 6
)

// taker is our own process, traced where takes is called, with a CQ whose entries the
// kernel is said to write.
type taker struct {
	testing.TB
	coll   *ebpf.Collection
	rings  []*ebpf.Map // by CPU
	kernel *ebpf.Map
	base   uint64 // its address in the kernel
	memory [size]byte
	cq     uintptr
	wc     wc
	taken  uintptr // what the call gave: of no use, but a call whose result nobody takes is an error
}

func newTaker(t testing.TB, programs ...string) *taker {
	t.Helper()
	testenv.Root(t)
	spec, err := LoadRdma()
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]*ebpf.ProgramSpec{}
	for _, name := range programs {
		run[name] = spec.Programs[name]
	}
	spec.Programs = run
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps[RdmaMapRings].MaxEntries = uint32(cpus)
	spec.Maps[RdmaMapCpus].MaxEntries = uint32(cpus)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	k := &taker{TB: t, coll: coll, cq: 0x1000}
	for cpu := range uint32(cpus) {
		k.rings = append(k.rings, newMap(t, &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 18}))
		k.put(RdmaMapRings, cpu, k.rings[cpu])
	}
	pid := uint32(os.Getpid())
	k.put(RdmaMapTargets, pid, RdmaTarget{})
	bits := make([]uint64, coll.Variables[RdmaVarTargetBits].Size()/8)
	bits[pid%4096/64] |= 1 << (pid % 64)
	k.set(RdmaVarTargetBits, bits)
	k.set(RdmaVarOpen, uint8(1))
	var slots [128]RdmaPollSlot
	slots[0] = RdmaPollSlot{Mode: uint32(RdmaPollModePOLL_SITE), CqAt: 0, WcAt: 3}
	k.set(RdmaVarPollSlots, slots)
	k.kernel = newMap(t, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1})
	k.base = address(t, k.kernel)
	k.put(RdmaMapCqs, k.key(), RdmaCqState{
		RingAt: k.base, MaskAt: k.base + ringMask, EntriesAt: ringEntries, ConsumerAt: ringConsumer, EntryShift: entryShift})
	return k
}

func (k *taker) key() RdmaObjectKey {
	return RdmaObjectKey{Object: uint64(k.cq), Pid: uint32(os.Getpid())}
}

func newMap(t testing.TB, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// address is where the kernel has the first value of a map.
func address(t testing.TB, m *ebpf.Map) (at uint64) {
	t.Helper()
	out := newMap(t, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R1, m.FD(), 0),
		asm.LoadMapValue(asm.R2, out.FD(), 0),
		asm.StoreMem(asm.R2, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	if _, err := p.Run(&ebpf.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := out.Lookup(uint32(0), &at); err != nil || at == 0 {
		t.Fatalf("at %#x: %v", at, err)
	}
	return at
}

// attach has a program run where takes is called, until it is detached.
func (k *taker) attach(program string) (detach func()) {
	k.Helper()
	return k.attachTo(program, takes, 1<<16) // of the first slot
}

// attachTo has a program run where a function of ours is called, with a cookie.
func (k *taker) attachTo(program string, function any, cookie uint64) (detach func()) {
	k.Helper()
	const self = "/proc/self/exe"
	f, err := elf.Open(self)
	if err != nil {
		k.Fatal(err)
	}
	defer f.Close()
	at := uint64(reflect.ValueOf(function).Pointer())
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || at < p.Vaddr || at >= p.Vaddr+p.Filesz {
			continue
		}
		ex, err := link.OpenExecutable(self)
		if err != nil {
			k.Fatal(err)
		}
		l, err := ex.Uprobe("", k.coll.Programs[program], &link.UprobeOptions{
			Address: at - p.Vaddr + p.Off, PID: os.Getpid(), Cookie: cookie})
		if err != nil {
			k.Fatal(err)
		}
		return func() { l.Close() }
	}
	k.Fatal("it is not in the file at the address where it runs")
	return nil
}

func (k *taker) put(name string, key, value any) {
	k.Helper()
	if err := k.coll.Maps[name].Put(key, value); err != nil {
		k.Fatal(err)
	}
}

func (k *taker) set(name string, value any) {
	k.Helper()
	if err := k.coll.Variables[name].Set(value); err != nil {
		k.Fatal(err)
	}
}

// moves says where the ring is, and for how many entries.
func (k *taker) moves(ring, entries uint32) {
	binary.NativeEndian.PutUint64(k.memory[:], k.base+uint64(ring))
	binary.NativeEndian.PutUint32(k.memory[ringMask:], entries-1)
}

// writes puts an entry of that id into a ring, of which so many were consumed then.
func (k *taker) writes(ring, index uint32, id uint64, consumed uint32) {
	k.Helper()
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, wc{ID: id, QPN: 7}); err != nil {
		k.Fatal(err)
	}
	copy(k.memory[ring+ringEntries+index<<entryShift:], b.Bytes())
	binary.NativeEndian.PutUint32(k.memory[ring+ringConsumer:], consumed)
}

// takes consumes a completion of that id, and gives what was counted so far:
// completions, those that were none, and those whose entry could not be read.
func (k *taker) takes(id uint64) (counts [3]uint32) {
	k.Helper()
	if err := k.kernel.Put(uint32(0), k.memory[:]); err != nil {
		k.Fatal(err)
	}
	k.wc = wc{ID: id, QPN: 7}
	k.taken = takes(k.cq, uintptr(unsafe.Pointer(&k.wc)), 0, k.cq)
	runtime.KeepAlive(k)
	for i, name := range []string{RdmaVarPollTaken, RdmaVarPollUnfit, RdmaVarPollTimeless} {
		var all [128]uint32
		if err := k.coll.Variables[name].Get(&all); err != nil {
			k.Fatal(err)
		}
		counts[i] = all[0]
	}
	return counts
}

// TestRingMoves: the entry of a completion that was not read yet when its queue was
// resized is looked for where it is now, of as many as there are now.
func TestRingMoves(t *testing.T) {
	k := newTaker(t, RdmaProgPollSite)
	defer k.attach(RdmaProgPollSite)()
	k.moves(ringA, 8)
	k.writes(ringA, 7, 100, 8)
	if got, want := k.takes(100), [3]uint32{1, 0, 0}; got != want {
		t.Errorf("before: %v, want %v", got, want)
	}
	k.moves(ringB, 16)
	for i := range uint32(8) {
		k.writes(ringA, i, 666, 8) // another's by now
	}
	k.writes(ringB, 8, 101, 9)
	if got, want := k.takes(101), [3]uint32{2, 0, 0}; got != want {
		t.Errorf("after: %v, want %v", got, want)
	}
	if got, want := k.takes(102), [3]uint32{3, 1, 0}; got != want {
		t.Errorf("of one that is not there: %v, want %v", got, want)
	}
	clear(k.memory[:8])
	if got, want := k.takes(103), [3]uint32{4, 1, 1}; got != want {
		t.Errorf("of a queue that is gone: %v, want %v", got, want)
	}
}

// TestQueueStates: nothing that was known of a CQ is of a later one at its address, and
// with it goes what is known of it, be it polled or not.
func TestQueueStates(t *testing.T) {
	k := newTaker(t, RdmaProgInitCqEnter, RdmaProgDestroyCqEnter)
	hit := func(program string) {
		defer k.attach(program)()
		k.takes(1)
	}
	var s RdmaCqState
	hit(RdmaProgInitCqEnter)
	if err := k.coll.Maps[RdmaMapCqs].Lookup(k.key(), &s); err != nil || s != (RdmaCqState{}) {
		t.Errorf("of a new one is known: %+v, %v", s, err)
	}
	hit(RdmaProgDestroyCqEnter)
	if err := k.coll.Maps[RdmaMapCqs].Lookup(k.key(), &s); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("of a destroyed one is known: %+v, %v", s, err)
	}
	hit(RdmaProgInitCqEnter)
	if err := k.coll.Maps[RdmaMapCqs].Lookup(k.key(), &s); err != nil {
		t.Errorf("of one that the kernel may write to: %v", err)
	}
}
