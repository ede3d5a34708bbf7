//go:build amd64

package bpf

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// record is one as the programs wrote it, of the thread that runs the test.
func (k *taker) record(kind RdmaRecordKind) []byte {
	k.Helper()
	if all := k.records(kind); len(all) > 0 {
		return all[0]
	}
	return nil
}

// records are all of a kind that are there, of the thread that runs the test.
func (k *taker) records(kind RdmaRecordKind) [][]byte {
	k.Helper()
	return k.recordsOf(kind, unix.Gettid())
}

// recordsOf are all of a kind that are there, of a thread. Others are dropped.
func (k *taker) recordsOf(kind RdmaRecordKind, tid int) (all [][]byte) {
	k.Helper()
	for cpu := range k.rings {
		r, err := ringbuf.NewReader(k.rings[cpu])
		if err != nil {
			k.Fatal(err)
		}
		r.SetDeadline(time.Now()) // what is there already
		for {
			rec, err := r.Read()
			if err != nil {
				break
			}
			h := (*RdmaRecordHeader)(unsafe.Pointer(&rec.RawSample[0]))
			if h.Kind == uint16(kind) && h.Tid == uint32(tid) {
				all = append(all, rec.RawSample)
			}
		}
		r.Close()
	}
	return all
}

// clock has the program run every millisecond that this thread runs.
func (k *taker) clock(program *ebpf.Program) (stop func()) {
	k.Helper()
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(time.Millisecond)}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD())
	}
	if err != nil {
		k.Fatal(err)
	}
	return func() { unix.Close(fd) }
}

// TestSample: a thread that polls is sampled, with its stack, once it was seen to poll.
func TestSample(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := newTaker(t, RdmaProgPollSite, RdmaProgSample)
	spin := func() []byte {
		t.Helper()
		defer k.clock(k.coll.Programs[RdmaProgSample])()
		for ran := 0; ran < 100; ran++ {
			for i := range 1_000_000 {
				k.taken ^= uintptr(i)
			}
			if raw := k.record(RdmaRecordKindRECORD_SAMPLE); raw != nil {
				return raw
			}
		}
		return nil
	}
	if spin() != nil {
		t.Error("a thread that was never seen to poll is sampled")
	}
	detach := k.attach(RdmaProgPollSite)
	k.moves(ringA, 8)
	k.writes(ringA, 7, 100, 8)
	k.takes(100)
	detach()
	raw := spin()
	if raw == nil {
		t.Fatal("no sample")
	}
	s := (*RdmaSampleRecord)(unsafe.Pointer(&raw[0]))
	if s.H.Pid != uint32(os.Getpid()) || s.Period != uint64(time.Millisecond) || s.Stack == 0 {
		t.Errorf("%+v", *s)
	}
}
