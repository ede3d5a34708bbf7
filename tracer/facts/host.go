package facts

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

// Host describes this machine.
func Host() event.Host {
	h := event.Host{
		Distribution:   distribution("/etc/os-release", "/usr/lib/os-release"),
		CPUs:           cpus("/sys/devices/system/cpu/online"),
		RealtimeOffset: realtimeOffset(),
		Governor:       governors("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Name = clean(unix.ByteSliceToString(u.Nodename[:]))
		h.Kernel = clean(unix.ByteSliceToString(u.Release[:]))
		h.Arch = clean(unix.ByteSliceToString(u.Machine[:]))
	}
	return h
}

// distribution is PRETTY_NAME of the first file that has one (os-release(5)).
func distribution(files ...string) string {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		sc := bufio.NewScanner(bytes.NewReader(text))
		for sc.Scan() {
			value, ok := strings.CutPrefix(sc.Text(), "PRETTY_NAME=")
			if !ok {
				continue
			}
			if q, err := strconv.Unquote(value); err == nil {
				value = q
			}
			return clean(strings.Trim(value, `'"`))
		}
	}
	return ""
}

// cpus counts the CPUs that are online. runtime.NumCPU is what rdmatrace may
// use, which is less where it keeps off the target's.
func cpus(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return runtime.NumCPU()
	}
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || b < a {
			return runtime.NumCPU()
		}
		n += b - a + 1
	}
	return n
}

// realtimeOffset is CLOCK_REALTIME minus CLOCK_MONOTONIC, ns: of several
// readings the one that took least time, which bounds its error.
func realtimeOffset() int64 {
	var best, offset int64
	for i := range 10 {
		var before, real, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_REALTIME, &real) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0
		}
		if took := after.Nano() - before.Nano(); i == 0 || took < best {
			best, offset = took, real.Nano()-before.Nano()-took/2
		}
	}
	return offset
}

// governors lists the different cpufreq governors of all CPUs.
func governors(pattern string) string {
	files, _ := filepath.Glob(pattern) // the pattern is a constant, and right
	seen := map[string]bool{}
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && len(bytes.TrimSpace(text)) > 0 {
			seen[clean(string(text))] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ",")
}
