package facts

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Steal is for how long a hypervisor ran something else on the CPUs of this
// machine though they had work, since it was booted; 0 where that is not told.
// It is known to 10 ms: /proc/stat counts in USER_HZ, which is 100 on x86-64 and
// arm64.
func Steal() time.Duration { return steal("/proc/stat") }

const userHZ = 100

func steal(file string) time.Duration {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal ..
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	n, err := strconv.ParseUint(f[8], 10, 63)
	if err != nil || n > uint64(time.Duration(1<<63-1)/time.Second) {
		return 0
	}
	return time.Duration(n) * time.Second / userHZ
}

// StealNote says what was stolen of a window on so many CPUs; empty if that was
// less than a hundredth of their time.
func StealNote(stolen, window time.Duration, cpus int) string {
	all := window * time.Duration(cpus)
	if stolen <= 0 || stolen < all/100 {
		return ""
	}
	return fmt.Sprintf("the hypervisor took the CPUs of this virtual machine for %v of %v (steal time, %d CPUs together): "+
		"nothing here sees when, so it is in whatever ran then", stolen, all.Round(time.Millisecond), cpus)
}
