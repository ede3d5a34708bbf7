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

// sampleRate is per second and CPU: no divisor of what is often done a hundred or a
// thousand times a second, with which samples would keep step.
const sampleRate = 199

// sampler is a clock on each CPU at which what a thread runs is looked at.
type sampler struct {
	clocks []int // perf events
}

// samplerClock is what the kernel calls it.
const samplerClock = "cpu-clock"

// openSampler sets the clocks of so many CPUs up, which stand still. One that is off
// needs none.
func openSampler(cpus int, host locate.Host, clock func(cpu int) (int, error)) (*sampler, event.Probe) {
	s := &sampler{}
	probe := event.Probe{Name: bpf.RdmaProgSample, Kind: "perf_event"}
	for cpu := range cpus {
		fd, err := clock(cpu)
		if err == nil {
			s.clocks = append(s.clocks, fd)
		}
		if err == nil || errors.Is(err, unix.ENODEV) {
			continue
		}
		probe.Error = fmt.Sprintf("CPU %d: %v", cpu, err)
		if why := locate.Refusal(host); errors.Is(err, os.ErrPermission) && why != "" {
			probe.Error += "; " + why
		}
		break
	}
	return s, probe
}

// clock sets one up for a CPU with the program. Its period is fixed: a frequency
// may be above the limit of kernel.perf_event_max_sample_rate.
func (k *kernel) clock(cpu int) (fd int, err error) {
	prog := k.prog(bpf.RdmaProgSample)
	if prog == nil {
		return -1, errors.New(k.missing[bpf.RdmaProgSample])
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(time.Second) / sampleRate, Bits: unix.PerfBitDisabled,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	if fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
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
