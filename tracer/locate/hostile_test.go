package locate

import (
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// FuzzObjects: whatever a process's memory holds, what is looked for there is
// found or not, and the look ends. The memory is this process's own; words of
// the input that begin with 0xaa are made addresses inside it.
func FuzzObjects(f *testing.F) {
	const size = 4 << 12
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		f.Fatal(err)
	}
	p, err := Open(os.Getpid())
	if err != nil {
		f.Fatalf("this process cannot look at itself: %v", err)
	}
	i := slices.IndexFunc(p.maps, func(m image.Mapping) bool {
		return m.Start <= addressOf(mem) && addressOf(mem) < m.End
	})
	if i < 0 {
		f.Fatal("the memory is not mapped")
	}
	cq := make([]byte, privateBytes)
	binary.LittleEndian.PutUint32(cq[cqEntries:], 63)
	binary.LittleEndian.PutUint64(cq[416:], 0xaa00000000000150)
	f.Add(cq)
	f.Add(slices.Repeat([]byte{0xff}, 512))
	f.Add(slices.Repeat([]byte{0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 128)) // an address whose end is past 2^64
	f.Add(slices.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0xaa}, 128))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), size)]
		clear(mem)
		copy(mem, b)
		base := addressOf(mem)
		for o := 0; o+8 <= len(b); o += 8 {
			if mem[o+7] == 0xaa {
				w := binary.LittleEndian.Uint64(mem[o:]) & 0xffff
				binary.LittleEndian.PutUint64(mem[o:], base+w)
			}
		}
		for _, addr := range []uint64{base, base + 8, base + size - 512, base + size - 8, base + size, ^uint64(0) - 100} {
			_, _ = p.context(addr)
			_, _ = p.qp(addr, nil)
			_, _ = p.cq(addr, nil)
			c := CQ{Addr: addr, CQE: 63}
			for _, s := range p.cqShapes(c) {
				_, _ = p.proveCQOnce(c, s, map[uint32]bool{0: true})
			}
			q := QP{Addr: addr, Num: 1}
			for _, sq := range p.qpShapes(q) {
				_, _ = p.proveQPOnce(q, sq)
				p.proveSignals([]QP{q}, sq)
			}
			_, _ = p.entered(found{DeviceContext: DeviceContext{Addr: addr}}, []QP{{Context: addr, Addr: base}})
			c2 := &collector{}
			_ = p.memberFunctions(addr, p.layout().qpEx, p.layout().qpExEnd, "live QP", c2)
		}
	})
}

// TestForbidden: where the memory may not be read, the files still tell, and
// it is said. A filter on this very system call stands for a security module.
func TestForbidden(t *testing.T) {
	const child = "LOCATE_TEST_FORBIDDEN"
	if os.Getenv(child) != "" {
		forbidden(t)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestForbidden$")
	cmd.Env = append(os.Environ(), child+"=1")
	run(t, cmd)
}

func forbidden(t *testing.T) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PROCESS_VM_READV, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog))); e != 0 {
		t.Fatal(e)
	}
	s := scan(t, openProcess(t, os.Getpid()))
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "not permitted") || len(s.Contexts) != 0 {
		t.Errorf("%+v", s)
	}
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
