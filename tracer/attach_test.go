package tracer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// TestNoProbesUnderAFilter: a process that has a seccomp filter by now, as a
// child that nobody examined may, gets no probes where a return probe is a
// system call.
func TestNoProbesUnderAFilter(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("return probes are a system call on x86-64 only")
	}
	const pid = 4242
	for _, test := range []struct {
		seccomp, symbols string
		refused          bool
	}{
		{"2", "ffffffff81000000 t __x64_sys_uretprobe\n", true},
		{"2", "ffffffff81000000 t __x64_sys_read\n", false},
		{"0", "ffffffff81000000 t __x64_sys_uretprobe\n", false},
	} {
		proc := t.TempDir()
		task := filepath.Join(proc, fmt.Sprintf("%d/task/%d", pid, pid))
		if err := os.MkdirAll(task, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			filepath.Join(task, "status"):   "Name:\tjob\nSeccomp:\t" + test.seccomp + "\n",
			filepath.Join(proc, "kallsyms"): test.symbols,
		} {
			if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		a := newAttacher(&kernel{}, &links{}, pid, locate.Host{Proc: proc})
		lib := &locate.Library{Path: "lib.so", Open: filepath.Join(proc, "lib.so")}
		n, err := a.attachLibrary(lib, locate.Functions{{Library: lib, Verb: locate.PostSend, Offset: 16}})
		// One that may be probed gets as far as its library, which is not there.
		if n != 0 || errors.Is(err, errNoReturnProbes) != test.refused || errors.Is(err, os.ErrNotExist) == test.refused {
			t.Errorf("%+v: %d attached, %v", test, n, err)
		}
	}
}

// TestTurns: in a process that runs, a probe is not hit before those without
// which its record would be half of one.
func TestTurns(t *testing.T) {
	lib := &locate.Library{Path: "lib.so"}
	fns := locate.Functions{
		{Library: lib, Verb: locate.WRStart, Offset: 16}, {Library: lib, Verb: locate.WRRDMAWrite, Offset: 32},
		{Library: lib, Verb: locate.WRSetSGE, Offset: 48}, {Library: lib, Verb: locate.WRComplete, Offset: 64},
	}
	batches := newAttacher(&kernel{}, &links{}, 1, locate.Host{}).plan(lib, fns, nil)
	if n := len(batches); n != 5 || !batches[0].ret || batches[n-1].program != bpf.RdmaProgBuildStart {
		t.Errorf("%d batches, the first at a return: %v, the last: %s", n, batches[0].ret, batches[n-1].program)
	}
}

// TestArmsTellOfStepping: the probe of ibv_req_notify_cq is told whether the kernel has
// to single-step its instruction.
func TestArmsTellOfStepping(t *testing.T) {
	code := make([]byte, 256)
	copy(code, []byte{0x8b, 0x87, 0xc8, 0x01, 0x00, 0x00, 0x31, 0xd2}) // mov 0x1c8(%rdi),%eax; xor %edx,%edx
	copy(code[128:], []byte{0x55})                                     // push %rbp
	if runtime.GOARCH == "arm64" {
		copy(code, []byte{0xfd, 0x7b, 0xbe, 0xa9})       // stp x29, x30, [sp, #-32]!
		copy(code[128:], []byte{0x10, 0x00, 0x00, 0x14}) // b
	}
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, code, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lib := &locate.Library{}
	fns := locate.Functions{
		{Library: lib, Verb: locate.ReqNotifyCQ, Offset: 0}, {Library: lib, Verb: locate.ReqNotifyCQ, Offset: 128},
	}
	batches := newAttacher(&kernel{}, &links{}, 1, locate.Host{}).plan(lib, fns, file)
	if len(batches) != 1 || len(batches[0].sites) != 2 {
		t.Fatalf("%+v", batches)
	}
	for i, want := range []uint64{event.ArmStepped, 0} {
		if got := batches[0].sites[i].cookie; got != want {
			t.Errorf("function %d: cookie %#x, want %#x", i, got, want)
		}
	}
}
