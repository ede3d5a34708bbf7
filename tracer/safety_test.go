package tracer

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// pingpong runs a pair that goes on until the test ends.
func (d *device) pingpong() (server, client *process) {
	d.t.Helper()
	return d.pair("ibv_rc_pingpong", "-e", "-n", "100000000")
}

// pair starts a tool as server and as client, until that has its device open.
func (d *device) pair(argv ...string) (server, client *process) {
	d.t.Helper()
	server, line := d.server(argv...)
	client = start(d.t, onDevice(line...)...)
	waitFor(d.t, "the client to map libmlx5 and talk", func() bool {
		if gone(client.cmd.Process.Pid) {
			d.t.Fatalf("%s ended: %s", client.cmd, client.out.String())
		}
		return len(connected(d.t, client.cmd.Process.Pid)) > 0
	})
	return server, client
}

// connected are the mappings of libmlx5 in a process once it has a device open.
func connected(t *testing.T, pid int) []image.Mapping {
	t.Helper()
	return codeOf(pid, libmlx5)
}

const libmlx5 = "/libmlx5."

// codeOf is what a process has mapped of a library's code.
func codeOf(pid int, library string) []image.Mapping {
	maps, err := image.ReadMaps(uint32(pid))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(maps, func(m image.Mapping) bool { return !m.Exec || !strings.Contains(m.Path, library) })
}

// TestNeighbour traces one of two processes that share libmlx5: there are
// breakpoints in its memory, and none in the other's.
func TestNeighbour(t *testing.T) {
	d := startDevice(t)
	server, client := d.pingpong()
	tr, err := New(t.Context(), Config{PIDs: []int{client.cmd.Process.Pid}})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range tr.probeResults() {
		if !strings.Contains(p.Library, libmlx5) || p.Error != "" {
			continue
		}
		checked++
		original := fileByte(t, client.cmd.Process.Pid, p.Offset)
		if got := memoryByte(t, client.cmd.Process.Pid, p.Offset); got == original {
			t.Errorf("%s at %#x: no breakpoint in the target", p.Name, p.Offset)
		}
		if got := memoryByte(t, server.cmd.Process.Pid, p.Offset); got != original {
			t.Errorf("%s at %#x: the neighbour's byte is %#x, the file's %#x", p.Name, p.Offset, got, original)
		}
	}
	if checked < 10 {
		t.Errorf("only %d probes in libmlx5", checked)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range tr.probeResults() {
		if strings.Contains(p.Library, libmlx5) && memoryByte(t, client.cmd.Process.Pid, p.Offset) != fileByte(t, client.cmd.Process.Pid, p.Offset) {
			t.Errorf("%s at %#x: still there after Close", p.Name, p.Offset)
		}
	}
}

// memoryByte is the byte of libmlx5's code in a process at an offset of its file.
func memoryByte(t *testing.T, pid int, offset uint64) byte {
	t.Helper()
	for _, m := range connected(t, pid) {
		if offset >= m.Offset && offset < m.Offset+(m.End-m.Start) {
			return byteAt(t, fmt.Sprintf("/proc/%d/mem", pid), int64(m.Start+offset-m.Offset))
		}
	}
	t.Fatalf("process %d: offset %#x of libmlx5 is not mapped", pid, offset)
	return 0
}

func fileByte(t *testing.T, pid int, offset uint64) byte {
	t.Helper()
	return byteAt(t, connected(t, pid)[0].Path, int64(offset))
}

func byteAt(t *testing.T, path string, at int64) byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	return b[0]
}

// TestLinks asks the kernel where the probes are and for whom.
func TestLinks(t *testing.T) {
	d := startDevice(t)
	_, client := d.pingpong()
	tr, err := New(t.Context(), Config{PIDs: []int{client.cmd.Process.Pid}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if !tr.kernel.multi {
		t.Skipf("single uprobes on this kernel: %s", tr.kernel.single)
	}
	want := map[uint64]int{}
	for _, p := range tr.probeResults() {
		if strings.HasPrefix(p.Kind, "u") {
			want[p.Offset]++
		}
	}
	got := map[uint64]int{}
	for _, l := range tr.links.all {
		for _, offset := range multiOffsets(t, l, uint32(client.cmd.Process.Pid)) {
			got[offset]++
		}
	}
	if len(got) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the kernel has probes at %v, wanted at %v", got, want)
	}
}

func multiOffsets(t *testing.T, l link.Link, pid uint32) []uint64 {
	t.Helper()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	multi := info.UprobeMulti()
	if multi == nil {
		return nil
	}
	if got, ok := multi.Pid(); !ok || got != pid {
		t.Errorf("a probe is on process %d, wanted %d", got, pid)
	}
	offsets, ok := multi.Offsets()
	if !ok {
		t.Fatal("the kernel tells no offsets")
	}
	var out []uint64
	for _, o := range offsets {
		out = append(out, o.Offset)
	}
	return out
}

// TestCloseLeavesNothing counts descriptors before and after, on success and
// on failure half-way.
func TestCloseLeavesNothing(t *testing.T) {
	d := startDevice(t)
	_, client := d.pingpong()
	once := func(pids ...int) error {
		tr, err := New(t.Context(), Config{PIDs: pids})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err = tr.Run(ctx, func(e *event.Event) error {
			if n++; n == 100 {
				cancel()
			}
			return nil
		})
		cancel()
		tr.Context()
		if cerr := tr.Close(); cerr != nil {
			t.Error(cerr)
		}
		return err
	}
	// The first time opens what stays open: the runtime's poller, caches.
	if err := once(client.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	before := settledFiles(t)
	if err := once(client.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := once(client.cmd.Process.Pid, 1<<22); err == nil {
		t.Error("tracing a process that doesn't exist succeeded")
	}
	if after := settledFiles(t); !slices.Equal(before, after) {
		t.Errorf("open before: %v\nopen after:  %v", before, after)
	}
}

// settledFiles waits until nothing of BPF is open: calibration ends behind our back.
func settledFiles(t *testing.T) (files []string) {
	t.Helper()
	waitFor(t, "programs, maps and links to be closed", func() bool {
		files = openFiles(t)
		return !slices.ContainsFunc(files, func(f string) bool {
			return strings.Contains(f, "bpf") || strings.Contains(f, "perf_event")
		})
	})
	return files
}

func openFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && to != fmt.Sprintf("/proc/%d/fd", os.Getpid()) {
			out = append(out, e.Name()+" "+to)
		}
	}
	slices.Sort(out)
	return out
}

// TestOverload stalls the reader of small rings: every record that was made is
// either delivered or told of as lost.
func TestOverload(t *testing.T) {
	d := startDevice(t)
	server, client := d.server("ib_write_bw", "-n", "5000", "-s", "64")
	tr, err := New(t.Context(), Config{Command: onDevice(client...), RingBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	delivered, lost := [event.Kinds]uint64{}, [event.Kinds]uint64{}
	err = tr.Run(t.Context(), func(e *event.Event) error {
		if e.Kind == event.KindLoss {
			lost[e.Loss.Of] += e.Loss.Count
			if e.Loss.Begin > e.Time {
				t.Errorf("a loss begins at %d and ends at %d", e.Loss.Begin, e.Time)
			}
			return nil
		}
		if e.Kind == event.KindWR && delivered[event.KindWR] == 0 {
			<-tr.Command().Done()
		}
		delivered[e.Kind]++
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	pid := tr.Command().PID()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	server.wait(t)
	posted, signaled := uint64(0), uint64(0)
	for _, row := range d.stop() {
		if row.PID == pid && row.Kind == truth.Send {
			posted++
			if row.Flags.Has(truth.Signaled) {
				signaled++
			}
		}
	}
	t.Logf("delivered %v lost %v", delivered, lost)
	if got := delivered[event.KindWR] + lost[event.KindWR]; got != posted || lost[event.KindWR] == 0 {
		t.Errorf("%d WRs delivered, %d lost; the device executed %d", delivered[event.KindWR], lost[event.KindWR], posted)
	}
	if got := delivered[event.KindCompletion] + lost[event.KindCompletion]; got != signaled {
		t.Errorf("%d completions delivered, %d lost; the device wrote %d",
			delivered[event.KindCompletion], lost[event.KindCompletion], signaled)
	}
}
