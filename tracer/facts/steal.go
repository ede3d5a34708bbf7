package facts

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// StolenTime is, by CPU, for how long a hypervisor ran something else on it though
// it had work.
type StolenTime map[int]time.Duration

// Steal is what was stolen since the machine was booted; empty where that is not
// told. It is known to 10 ms: /proc/stat counts in USER_HZ, which is 100 on x86-64
// and arm64.
func Steal() StolenTime { return steal("/proc/stat") }

const (
	userHZ    = 100
	stealTick = time.Second / userHZ
)

func steal(file string) StolenTime {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	stolen := StolenTime{}
	for line := range strings.Lines(string(text)) {
		// cpu0 user nice system idle iowait irq softirq steal ..
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "cpu") {
			break // the lines of CPUs come first
		}
		cpu, err := strconv.Atoi(strings.TrimPrefix(f[0], "cpu"))
		if err != nil || len(f) < 9 {
			continue // all together, or before 2.6.11
		}
		n, err := strconv.ParseUint(f[8], 10, 63)
		if err == nil && n <= uint64(time.Duration(1<<63-1)/stealTick) {
			stolen[cpu] = time.Duration(n) * stealTick
		}
	}
	return stolen
}

// Since is what was stolen of each CPU since before, of those known at both times.
func (s StolenTime) Since(before StolenTime) StolenTime {
	during := StolenTime{}
	for cpu, d := range s {
		if b, known := before[cpu]; known {
			during[cpu] = d - b
		}
	}
	return during
}

// Note says what was stolen in a window; empty if that was less than a hundredth of
// every CPU's time, or no more than a tick, which may be next to nothing. It goes by
// CPU: on a wide machine one that is stolen half the time is little of all.
func (s StolenTime) Note(window time.Duration) string {
	worst, others := -1, 0
	var all time.Duration
	for cpu, d := range s {
		if d <= stealTick || d < window/100 {
			continue
		}
		if all += d; worst < 0 || d > s[worst] || d == s[worst] && cpu < worst {
			worst = cpu
		}
		others++
	}
	if others--; worst < 0 {
		return ""
	}
	also := ""
	if others > 0 {
		noun := "others"
		if others == 1 {
			noun = "other"
		}
		also = fmt.Sprintf(", and %d %s for more than 1 %% of it, %v in all", others, noun, all)
	}
	return fmt.Sprintf("the hypervisor took CPU %d of this virtual machine for %v of %v (steal time)%s: "+
		"nothing here sees when, so it is in whatever ran then", worst, s[worst], window.Round(time.Millisecond), also)
}
