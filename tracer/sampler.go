package tracer

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// sampleRate is per second that a thread runs: no divisor of what is often done a
// hundred or a thousand times a second, with which samples would keep step.
const sampleRate = 199

// sampler is a set of clocks at which what threads run is looked at.
type sampler struct {
	clocks []int // perf events
}

// samplerClock is what the kernel calls it.
const samplerClock = "cpu-clock"

// A clock runs while its thread does, or those that this one starts, also in other
// processes if these are traced; or, with a thread of -1, on a CPU all the time.
type clock struct{ tid, cpu int }

// clocksMost: with more threads, or less open files to be had, the CPUs have clocks
// instead, which interrupt what else runs there as well, and the idle.
const clocksMost = 256

// clocksFor gives the threads of some processes clocks, so many at most.
func clocksFor(pids []int, most, cpus int, threads func(pid int) ([]int, error)) (all []clock) {
	known := map[int]bool{}
	for _, pid := range pids {
		for more := true; more; { // until none was started while the others got theirs
			more = false
			tids, err := threads(pid)
			if err != nil {
				break // it has ended
			}
			for _, tid := range tids {
				if !known[tid] {
					known[tid], more = true, true
					all = append(all, clock{tid, -1})
				}
			}
			if len(all) > most {
				return clocksOf(cpus)
			}
		}
	}
	return all
}

// clocksOf gives so many CPUs clocks.
func clocksOf(cpus int) (all []clock) {
	for cpu := range cpus {
		all = append(all, clock{-1, cpu})
	}
	return all
}

// openSampler sets clocks up, which stand still. Threads that have ended and CPUs that
// are off need none. All or none: what some sample only is no share of anything.
func openSampler(all []clock, host locate.Host, open func(clock) (int, error)) (*sampler, event.Probe) {
	s := &sampler{}
	probe := event.Probe{Name: bpf.RdmaProgSample, Kind: "perf_event"}
	for _, c := range all {
		fd, err := open(c)
		if err == nil {
			s.clocks = append(s.clocks, fd)
		}
		if err == nil || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) {
			continue
		}
		err = errors.Join(err, s.close())
		probe.Error = err.Error()
		if why := locate.Refusal(host); errors.Is(err, os.ErrPermission) && why != "" {
			probe.Error += "; " + why
		}
		break
	}
	return s, probe
}

// inheritThread is perf_event_attr.inherit_thread of <linux/perf_event.h>, which
// golang.org/x/sys lacks: threads inherit the event, processes do not (since 5.13).
const inheritThread = 1 << 35

// clock sets one up with the program. Its period is fixed: a frequency may be above the
// limit of kernel.perf_event_max_sample_rate.
func (k *kernel) clock(c clock) (fd int, err error) {
	prog := k.prog(bpf.RdmaProgSample)
	if prog == nil {
		return -1, errors.New(k.missing[bpf.RdmaProgSample])
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(time.Second) / sampleRate, Bits: unix.PerfBitDisabled,
	}
	if c.tid >= 0 {
		attr.Bits |= unix.PerfBitInherit
	}
	if c.tid >= 0 && !k.forks {
		attr.Bits |= inheritThread
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	if fd, err = unix.PerfEventOpen(&attr, c.tid, c.cpu, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return -1, fmt.Errorf("open a clock (perf_event_open): %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		return -1, errors.Join(fmt.Errorf("put the program on its clock: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// run starts the clocks, or stops them.
func (s *sampler) run(on bool) error {
	request := uint(unix.PERF_EVENT_IOC_DISABLE)
	if on {
		request = unix.PERF_EVENT_IOC_ENABLE
	}
	for _, fd := range s.clocks {
		if err := unix.IoctlSetInt(fd, request, 0); err != nil {
			return fmt.Errorf("start or stop the clock of samples: %w", err)
		}
	}
	return nil
}

func (s *sampler) close() error {
	var errs []error
	for _, fd := range s.clocks {
		errs = append(errs, unix.Close(fd))
	}
	s.clocks = nil
	return errors.Join(errs...)
}
