package attribution

import (
	"testing"
	"unicode/utf8"

	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	ctx := &event.Context{
		ToolPID: 77,
		IRQs:    []event.IRQ{{Line: 27, Name: "virtio3-input.0"}, {Line: 31, Name: "mlx5_comp3@pci:0000:03:00.0\xff"}},
		Threads: []event.Thread{{PID: 9, TID: 10, Comm: "pt_mpi"}, {PID: 9, TID: 11, Comm: "caf\xc3"}},
	}
	x86, arm := newNaming(ctx), newNaming(ctx)
	arm.arch = "arm64"
	irq := culprit{kind: culpritIRQ, id: 27}
	shared := culprit{kind: culpritIRQ, id: 5}
	copy(shared.name[:], "ahci[0000]")
	broken := task("", 4)
	copy(broken.name[:], "fifteen-bytes\xe2\x82") // cut inside a rune
	for _, c := range []struct{ got, want string }{
		{x86.culprit(&culprit{}), ""},
		{x86.culprit(ptr(task("stress-ng", 312))), "stress-ng (pid 312)"},
		{x86.culprit(ptr(task("rdmatrace", 77))), "rdmatrace (pid 77, which traced this)"},
		{x86.culprit(&broken), "fifteen-bytes\uFFFD (pid 4)"},
		{x86.culprit(&irq), "virtio3-input.0 (irq 27)"},
		{x86.culprit(&culprit{kind: culpritIRQ, id: 31}), "mlx5_comp3@pci:0000:03:00.0\uFFFD (irq 31)"},
		{x86.culprit(&shared), "ahci[0000] (irq 5)"},
		{x86.culprit(&culprit{kind: culpritIRQ, id: 6}), "irq 6"},
		{x86.culprit(&culprit{kind: culpritSoftirq, id: 3}), "NET_RX softirq"},
		{x86.culprit(&culprit{kind: culpritSoftirq, id: 77}), "softirq 77"},
		{x86.culprit(&culprit{kind: culpritTimer}), "local timer"},
		{x86.culprit(&culprit{kind: culpritIPI, id: 0xfd}), "reschedule IPI"},
		{arm.culprit(&culprit{kind: culpritIPI, id: 0xfd}), "IPI 253"},
		{x86.culprit(&culprit{kind: culpritSyscall, id: 0}), "read"},
		{arm.culprit(&culprit{kind: culpritSyscall, id: 63}), "read"},
		{x86.culprit(&culprit{kind: culpritSyscall, id: 202}), "futex"},
		{arm.culprit(&culprit{kind: culpritSyscall, id: 98}), "futex"},
		{x86.culprit(&culprit{kind: culpritSyscall, id: 999}), "syscall 999"},
		{x86.thread(10), "pt_mpi/10"},
		{x86.thread(11), "caf\uFFFD/11"},
		{x86.thread(12), "thread/12"},
		{x86.thread(0), ""},
		{opName(0, false), "WRITE"},
		{opName(1, false), "WRITE_IMM"},
		{opName(2, false), "SEND"},
		{opName(4, false), "READ"},
		{opName(6, false), "FETCH_ADD"},
		{opName(12, false), "op 12"},
		{opName(200, false), "op 200"},
		{opName(128, true), "RECV"},
		{opName(129, true), "RECV_WRITE_IMM"},
		{transportName(2), "RC"},
		{transportName(4), "UD"},
		{transportName(9), "XRC"},
		{transportName(77), "type 77"},
		{StatusName(0), "SUCCESS"},
		{StatusName(5), "WR_FLUSH_ERR"},
		{StatusName(12), "RETRY_EXC_ERR"},
		{StatusName(13), "RNR_RETRY_EXC_ERR"},
		{StatusName(99), "status 99"},
		{peerHost("lid 1 qp 0x105"), "lid 1"},
		{peerHost("10.0.1.2"), "10.0.1.2"},
		{peerHost(""), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestSizeLabels(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		want  string
	}{{0, "0B"}, {1, "1B"}, {2, "2B"}, {3, "4B"}, {1023, "1KiB"}, {1024, "1KiB"}, {1025, "2KiB"}, {4096, "4KiB"}, {1 << 20, "1MiB"},
		{1<<20 + 1, "2MiB"}, {1 << 32, "4GiB"}, {1<<63 + 1, "16EiB"}} {
		if got := sizeLabel(sizeBucket(c.bytes)); got != c.want {
			t.Errorf("%d bytes: %s, want %s", c.bytes, got, c.want)
		}
	}
}

// Every name is text, whatever the kernel or the processes call things.
func TestNamesAreValidUTF8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := culprit{kind: culpritKind(rapid.IntRange(0, 8).Draw(t, "kind")), id: rapid.Uint32().Draw(t, "id"), pid: rapid.Uint32().Draw(t, "pid")}
		copy(c.name[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "name"))
		comm := string(rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, "comm"))
		n := newNaming(&event.Context{
			Threads: []event.Thread{{TID: 1, Comm: comm}},
			IRQs:    []event.IRQ{{Line: c.id, Name: comm}},
		})
		for _, s := range []string{n.culprit(&c), n.thread(1)} {
			if !utf8.ValidString(s) {
				t.Errorf("%q", s)
			}
		}
	})
}
