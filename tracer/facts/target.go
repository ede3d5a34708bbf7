package facts

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// Bounds on what a process may make us keep.
const (
	maxArgs    = 256
	maxCmdline = 16 << 10
	maxEnviron = 4 << 20
)

// rankVariables are where launchers put a process's rank, the most specific
// first: Open MPI, PMIx, MPICH and its relatives (PMI), MVAPICH2, torchrun,
// Slurm.
var rankVariables = []string{
	"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "RANK", "SLURM_PROCID",
}

// Target describes a process; ok is false if there is none with that PID.
func Target(pid uint32) (t event.Target, ok bool) { return readTarget("/proc", pid) }

func readTarget(proc string, pid uint32) (t event.Target, ok bool) {
	dir := filepath.Join(proc, fmt.Sprint(pid))
	t = event.Target{PID: pid, Rank: -1}
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return t, false
	}
	t.Comm = clean(string(comm))
	if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		t.Exe = clean(exe)
	}
	cmdline := readBounded(filepath.Join(dir, "cmdline"), maxCmdline)
	if cmdline = strings.TrimRight(cmdline, "\x00"); cmdline != "" {
		for arg := range strings.SplitSeq(cmdline, "\x00") {
			if len(t.Cmdline) == maxArgs {
				break
			}
			t.Cmdline = append(t.Cmdline, clean(arg))
		}
	}
	t.Cgroup = cgroup(readBounded(filepath.Join(dir, "cgroup"), maxText))
	t.Rank = rank(environ(proc, pid))
	t.Exited = hasExited(readBounded(filepath.Join(dir, "stat"), maxText))
	return t, true
}

// readBounded reads a file of /proc up to a size; empty if it cannot.
func readBounded(name string, size int64) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 0, 4096)
	for int64(len(b)) < size {
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil || n == 0 {
			break
		}
	}
	return string(b[:min(int64(len(b)), size)])
}

// environ is the environment that a process was started with.
func environ(proc string, pid uint32) map[string]string {
	env := map[string]string{}
	text := readBounded(filepath.Join(proc, fmt.Sprint(pid), "environ"), maxEnviron)
	for line := range strings.SplitSeq(text, "\x00") {
		if name, value, ok := strings.Cut(line, "="); ok {
			if _, twice := env[name]; !twice { // getenv takes the first
				env[name] = value
			}
		}
	}
	return env
}

// rank is the rank that the environment tells, or -1.
func rank(env map[string]string) int {
	for _, name := range rankVariables {
		if n, err := strconv.ParseUint(env[name], 10, 31); err == nil {
			return int(n)
		}
	}
	return -1
}

// cgroup chooses from /proc/PID/cgroup (cgroups(7)): the one of version 2, or
// with version 1 that of the cpu controller, whose quota throttles.
func cgroup(text string) string {
	var cpu string
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			// A hybrid set-up has this too, but every process in its root.
			if path != "/" || cpu == "" {
				return clean(path)
			}
		case slices.Contains(strings.Split(controllers, ","), "cpu"):
			cpu = path
		}
	}
	return clean(cpu)
}

// hasExited reads the state in /proc/PID/stat, which follows the last ")":
// the name before it may contain anything.
func hasExited(stat string) bool {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 || i+2 >= len(stat) {
		return false
	}
	return stat[i+2] == 'Z' || stat[i+2] == 'X'
}

// Threads lists the threads that a process has now, by thread id.
func Threads(pid uint32) []event.Thread { return readThreads("/proc", pid) }

func readThreads(proc string, pid uint32) []event.Thread {
	dir := filepath.Join(proc, fmt.Sprint(pid), "task")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has exited
	}
	var threads []event.Thread
	for _, e := range entries {
		tid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(dir, e.Name(), "comm"))
		if err != nil {
			continue // it has just ended
		}
		threads = append(threads, event.Thread{
			PID: pid, TID: uint32(tid), Comm: clean(string(comm)),
			Affinity: allowed(readBounded(filepath.Join(dir, e.Name(), "status"), 16<<10)),
		})
	}
	slices.SortFunc(threads, func(a, b event.Thread) int { return cmp.Compare(a.TID, b.TID) })
	return threads
}

// allowed is Cpus_allowed_list of /proc/PID/status.
func allowed(status string) string {
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return clean(list)
		}
	}
	return ""
}
