package tracer

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// uprobeMultiWorks reports whether uprobe_multi links with a PID see all
// threads of a process. Kernels 6.6 to 6.9 took the PID for a thread's
// (fixed by commit 46ba0e49b642), and distributions backport both the link
// and the fix: so one is attached to this very process and hit by a thread
// that isn't its first. If not, why says so.
func uprobeMultiWorks() (ok bool, why string) {
	if err := features.HaveBPFLinkUprobeMulti(); err != nil {
		return false, err.Error()
	}
	hits, err := hitFromSecondThread()
	switch {
	case err != nil:
		return false, err.Error()
	case hits == 0:
		return false, "uprobe_multi links with a PID miss threads on this kernel"
	}
	return true, ""
}

// selfTestSite is what the self-test probes. Its body keeps it from being
// merged with another function.
//
//go:noinline
func selfTestSite(n int) int { return n + selfTestAdd }

var selfTestAdd = 1

func hitFromSecondThread() (uint64, error) {
	hits, err := ebpf.NewMap(&ebpf.MapSpec{Name: "selftest", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return 0, fmt.Errorf("uprobe self-test: %w", err)
	}
	defer hits.Close()
	prog, err := countingProgram(hits)
	if err != nil {
		return 0, fmt.Errorf("uprobe self-test: %w", err)
	}
	defer prog.Close()
	offset, err := selfOffset(reflect.ValueOf(selfTestSite).Pointer())
	if err != nil {
		return 0, fmt.Errorf("uprobe self-test: %w", err)
	}
	ex, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0, fmt.Errorf("uprobe self-test: %w", err)
	}
	l, err := ex.UprobeMulti(nil, prog, &link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: uint32(os.Getpid())})
	if err != nil {
		return 0, fmt.Errorf("uprobe self-test: %w", err)
	}
	defer l.Close()
	callFromSecondThread()
	var n uint64
	if err := hits.Lookup(uint32(0), &n); err != nil {
		return 0, fmt.Errorf("uprobe self-test: %w", err)
	}
	return n, nil
}

// callFromSecondThread calls the site on a thread that isn't the process's first.
func callFromSecondThread() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if unix.Gettid() != os.Getpid() {
			selfTestSite(1)
			return
		}
		// This goroutine holds the first thread, so another one runs there.
		other := make(chan struct{})
		go func() {
			defer close(other)
			selfTestSite(1)
		}()
		<-other
	}()
	<-done
}

// countingProgram adds one to the only element of hits at each run.
func countingProgram(hits *ebpf.Map) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "selftest", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, hits.FD()),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	})
}

// selfOffset is the offset in our own executable of a code address.
func selfOffset(addr uintptr) (uint64, error) {
	maps, err := image.ReadMaps(uint32(os.Getpid()))
	if err != nil {
		return 0, err
	}
	for _, m := range maps {
		if m.Exec && uint64(addr) >= m.Start && uint64(addr) < m.End {
			return uint64(addr) - m.Start + m.Offset, nil
		}
	}
	return 0, errors.New("the function is in no executable mapping")
}
