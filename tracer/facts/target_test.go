package facts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

func TestTarget(t *testing.T) {
	proc := plant(t, map[string]string{
		"7/comm":    "python3\n",
		"7/exe":     "-> /usr/bin/python3.11 (deleted)",
		"7/cmdline": "python3\x00train.py\x00--name\x00\x00\xffmodel\x00",
		"7/cgroup":  "0::/system.slice/job.scope\n",
		"7/environ": "PATH=/bin\x00RANK=3\x00OMPI_COMM_WORLD_RANK=11\x00EMPTY=\x00junk\x00",
		"7/stat":    "7 (python3) S 1 7",
	})
	want := event.Target{
		PID: 7, Comm: "python3", Exe: "/usr/bin/python3.11 (deleted)",
		Cmdline: []string{"python3", "train.py", "--name", "", "\uFFFDmodel"},
		Cgroup:  "/system.slice/job.scope", Rank: 11,
	}
	got, ok := readTarget(proc, 7)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v, -want +got:\n%s", ok, diff)
	}
	if _, ok := readTarget(proc, 8); ok {
		t.Error("a process that is not there was read")
	}
}

// Of a process that has exited nearly nothing can be read.
func TestTargetExited(t *testing.T) {
	proc := plant(t, map[string]string{"7/comm": "odd) Z (name\n", "7/cmdline": "", "7/stat": "7 (odd) S (name) Z 1 7"})
	want := event.Target{PID: 7, Comm: "odd) Z (name", Rank: -1, Exited: true}
	got, ok := readTarget(proc, 7)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v, -want +got:\n%s", ok, diff)
	}
}

func TestHugeCommandLine(t *testing.T) {
	proc := plant(t, map[string]string{
		"7/comm":    strings.Repeat("é", 8)[:15],
		"7/cmdline": strings.Repeat("x", 1<<20) + "\x00y",
		"8/comm":    "many",
		"8/cmdline": strings.Repeat("x\x00", 10000),
	})
	got, _ := readTarget(proc, 7)
	if n := len(got.Cmdline); n != 1 || len(got.Cmdline[0]) > maxText {
		t.Errorf("%d arguments", n)
	}
	if !utf8.ValidString(got.Comm) {
		t.Errorf("comm is %q", got.Comm)
	}
	if got, _ := readTarget(proc, 8); len(got.Cmdline) != maxArgs {
		t.Errorf("%d arguments", len(got.Cmdline))
	}
}

func TestRank(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want int
	}{
		{nil, -1},
		{map[string]string{"SLURM_PROCID": "5"}, 5},
		{map[string]string{"SLURM_PROCID": "0", "RANK": "6"}, 6},
		{map[string]string{"RANK": "6", "PMI_RANK": "2"}, 2},
		{map[string]string{"OMPI_COMM_WORLD_RANK": "0", "RANK": "6"}, 0},
		{map[string]string{"OMPI_COMM_WORLD_RANK": "", "RANK": "gold"}, -1},
		{map[string]string{"RANK": "-1"}, -1},
		{map[string]string{"RANK": "99999999999"}, -1},
		{map[string]string{"RANK": "+3"}, -1},
	} {
		if got := rank(tc.env); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.env, got, tc.want)
		}
	}
}

func TestCgroup(t *testing.T) {
	for text, want := range map[string]string{
		"0::/a/b\n": "/a/b",
		"0::/\n":    "/",
		"":          "",
		"12:cpu,cpuacct:/kube/pod\n1:name=systemd:/x\n0::/\n": "/kube/pod",
		"5:memory:/m\n4:cpuset:/s\n":                          "",
		"0::/with:colon\n":                                    "/with:colon",
		"junk\n":                                              "",
	} {
		if got := cgroup(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestThreads(t *testing.T) {
	proc := plant(t, map[string]string{
		"7/task/12/comm": "NCCL Progress 1\n", "7/task/12/status": "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n",
		"7/task/7/comm": "main\xff\n", "7/task/7/status": "",
		"7/task/9/status": "it has just ended", "7/task/x/comm": "no thread",
	})
	want := []event.Thread{
		{PID: 7, TID: 7, Comm: "main\uFFFD"},
		{PID: 7, TID: 12, Comm: "NCCL Progress 1", Affinity: "0-3,8"},
	}
	if diff := cmp.Diff(want, readThreads(proc, 7)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := readThreads(proc, 8); got != nil {
		t.Errorf("%+v", got)
	}
}

// This process and its threads, as the kernel has them.
func TestOwnProcess(t *testing.T) {
	pid := uint32(os.Getpid())
	got, ok := Target(pid)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !ok || got.Exe != exe || got.Exited || len(got.Cmdline) != len(os.Args) || got.Cgroup == "" || got.Comm == "" {
		t.Errorf("%+v, %v", got, ok)
	}
	runtime.LockOSThread() // not unlocked: the thread is thrown away with its name
	name := append([]byte("r\xffk 1 \xc3"), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptrOf(name), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	threads := Threads(pid)
	i := slices.IndexFunc(threads, func(th event.Thread) bool { return th.TID == uint32(unix.Gettid()) })
	if i < 0 || threads[i].Comm != "r\uFFFDk 1 \uFFFD" || threads[i].Affinity == "" || threads[i].PID != pid {
		t.Errorf("thread %d of %+v", i, threads)
	}
}

func TestOwnHost(t *testing.T) {
	h := Host()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if h.Name != name || h.Kernel == "" || h.Arch == "" || h.CPUs < 1 || h.CPUs < runtime.NumCPU() {
		t.Errorf("%+v", h)
	}
	out, err := exec.Command("getconf", "_NPROCESSORS_ONLN").Output()
	if err == nil && strings.TrimSpace(string(out)) != fmt.Sprint(h.CPUs) {
		t.Errorf("%d CPUs, getconf says %s", h.CPUs, out)
	}
	// In between two readings nobody sets the clock by a second.
	if d := realtimeOffset() - h.RealtimeOffset; h.RealtimeOffset <= 0 || d > 1e9 || d < -1e9 {
		t.Errorf("offset of the clocks: %d, then %d more", h.RealtimeOffset, d)
	}
}

func TestHostFiles(t *testing.T) {
	root := plant(t, map[string]string{
		"os-release": "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (\\\"bookworm\\\")\"\n", "os-2": "PRETTY_NAME='Arch'\n", "os-3": "ID=x\n",
		"online": "0-3,8,10-11\n", "bad": "0-x\n", "c0/g": "powersave\n", "c1/g": "performance\n", "c2/g": "powersave\n", "c3/g": "",
	})
	at := func(name string) string { return filepath.Join(root, name) }
	if got := distribution(at("none"), at("os-3"), at("os-release")); got != `Debian GNU/Linux 12 ("bookworm")` {
		t.Errorf("distribution %q", got)
	}
	if got := distribution(at("os-2")); got != "Arch" {
		t.Errorf("distribution %q", got)
	}
	if got := distribution(at("none")); got != "" {
		t.Errorf("distribution %q", got)
	}
	if got := cpus(at("online")); got != 7 {
		t.Errorf("%d CPUs", got)
	}
	if got := cpus(at("bad")); got != runtime.NumCPU() {
		t.Errorf("%d CPUs", got)
	}
	if got := governors(at("c*/g")); got != "performance,powersave" {
		t.Errorf("governors %q", got)
	}
	if got := governors(at("d*/g")); got != "" {
		t.Errorf("governors %q", got)
	}
}

func TestSysfsRoots(t *testing.T) {
	for name, tc := range map[string]struct {
		environ string
		want    []string // below /proc/7/root, but the last
	}{
		"nothing":               {"PATH=/bin\x00", []string{"/sys"}},
		"emulator":              {"LD_PRELOAD=/x/libsoftmlx5.so\x00SOFTMLX5_DIR=/tmp/d\x00", []string{"/tmp/d/sys", "/sys"}},
		"emulator at its place": {"LD_PRELOAD=libother.so:libsoftmlx5.so\x00", []string{"/run/softmlx5/sys", "/sys"}},
		"only its variable":     {"SOFTMLX5_DIR=/tmp/d\x00", []string{"/sys"}},
		"rdma-core's variable":  {"SYSFS_PATH=/fake\x00", []string{"/fake", "/sys"}},
		"both":                  {"SYSFS_PATH=/fake\x00LD_PRELOAD=libsoftmlx5.so\x00", []string{"/run/softmlx5/sys", "/fake", "/sys"}},
		"no place of its own":   {"SYSFS_PATH=/sys/\x00", []string{"/sys"}},
		"relative":              {"SYSFS_PATH=fake\x00", []string{"/sys"}},
	} {
		proc := plant(t, map[string]string{"7/environ": tc.environ})
		for i := range tc.want[:len(tc.want)-1] {
			tc.want[i] = filepath.Join(proc, "7/root", tc.want[i])
		}
		if got := sysfsRoots(proc, 7); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := sysfsRoots(t.TempDir(), 7); !slices.Equal(got, []string{"/sys"}) {
		t.Errorf("no process: %q", got)
	}
}
