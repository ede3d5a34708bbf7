package symbol_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/loopback"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// startPair starts ibv_rc_pingpong as server and as client on a device and
// returns the client's PID. They run until the test ends. (Perftest refuses to
// work on a busy machine whose clock it cannot calibrate.)
func startPair(t *testing.T, d *unwindtest.Device) (client uint32, path string) {
	t.Helper()
	path, err := exec.LookPath("ibv_rc_pingpong")
	if err != nil {
		testenv.Missing(t, "ibv_rc_pingpong is not installed")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	port, err := loopback.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"run", path, "-p", strconv.Itoa(port), "-n", "100000000"}
	run := func(args ...string) *exec.Cmd {
		cmd := d.Command(args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
			if t.Failed() {
				t.Logf("%v said:\n%s", args, &out)
			}
		})
		return cmd
	}
	server := run(args...)
	for !listens(t, server.Process.Pid, port) {
		time.Sleep(time.Millisecond)
	}
	return uint32(run(append(args, "127.0.0.1")...).Process.Pid), path
}

// listens says whether somebody listens on a port, as the server does when it is
// ready.
func listens(t *testing.T, pid, port int) bool {
	t.Helper()
	if _, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "net", "tcp")); err != nil {
		t.Fatalf("the server has ended: %v", err)
	}
	is, err := loopback.Listening(port)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// Debian's tools and libmlx5 are stripped and have no frame pointers. A
// stack from inside libmlx5 comes out whole all the same: through the library,
// the program and libc to _start.
func TestInsideProvider(t *testing.T) {
	d := unwindtest.StartDevice(t)
	pid, program := startPair(t, d)
	inside := func(f event.Frame) bool { return strings.Contains(f.Module, "/libmlx5") }
	waitMapped(t, pid, "/libmlx5")
	b := open(t, pid)
	var frames []event.Frame
	for { // a polling program is there most of the time
		addrs, stop := b.unw.Unwind(b.space, unwindtest.Freeze(t, pid), nil)
		if r, ok := b.space.Find(addrs[0]); ok && strings.Contains(r.Path, "/libmlx5") {
			frames = b.sym.Frames(pid, addrs, nil)
			if stop != unwind.StopOutermost {
				t.Errorf("unwinding stopped: %v", stop)
			}
			break
		}
	}
	var modules []string
	for _, f := range frames {
		// While it sets up its queues, libibverbs is in between.
		if m := filepath.Base(f.Module); len(modules) == 0 || modules[len(modules)-1] != m && !strings.HasPrefix(m, "libibverbs") {
			modules = append(modules, m)
		}
		if f.Module == "" || f.Offset == 0 || (inside(f) && f.Func != "") {
			t.Errorf("frame %+v", f)
		}
	}
	want := []string{filepath.Base(frames[0].Module), filepath.Base(program), "libc.so.6", filepath.Base(program)}
	if !contains(modules, want...) || len(modules) != len(want) {
		t.Errorf("modules are %q, want %q", modules, want)
	}
	// The tracer knows what it found there.
	region, ok := b.space.Find(frames[0].Addr)
	vaddr, ok2 := region.Vaddr(frames[0].Addr)
	begin, _, ok3 := unwind.NewTables().Extent(region.File, vaddr)
	offset, _, ok4 := region.File.Offset(begin)
	if !ok || !ok2 || !ok3 || !ok4 {
		t.Fatalf("where does the function of %+v begin?", frames[0])
	}
	b.sym.Name(region.File.BuildID, "", offset, "mlx5: poll_cq")
	if got := b.sym.Frames(pid, addrsOf(frames), nil); got[0].Func != "mlx5: poll_cq" {
		t.Errorf("named: %+v", got[0])
	}
}

// waitMapped waits until a process has executed its program and mapped a library.
func waitMapped(t *testing.T, pid uint32, name string) {
	t.Helper()
	for {
		maps, err := image.ReadMaps(pid)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.Exec && strings.Contains(m.Path, name) {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}
