// Package tracer observes an RDMA job: it finds the code that posts and polls,
// places probes in the targets' address spaces, reads what they record and
// hands it on as events. It is the only package that touches the kernel.
//
// New prepares everything, Run opens the gate and delivers events until the
// context ends or all targets have ended, Context describes what was observed,
// and Close takes the probes out, which can take seconds.
package tracer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
	"github.com/rdmatrace/rdmatrace/tracer/facts"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// Config says what to trace and how. The zero value of a field is its default.
type Config struct {
	// PIDs are the processes to trace, as this PID namespace numbers them.
	PIDs []int
	// Command is a program to start and trace, with its arguments: it is held
	// until the probes are in. Its standard streams are ours.
	Command []string
	// CommandStdout is its standard output instead of ours.
	CommandStdout *os.File
	// FollowForks traces the children of targets too. A Command's always are.
	FollowForks bool
	// RingBytes is the size of all ring buffers together; default 64 MiB.
	RingBytes int
	// Drain is the longest time a record waits in its ring; default 100 ms.
	Drain time.Duration
	// Tool is the version to name in the Context.
	Tool string
	// EmptyPolls observes polls at their entry and return for good, so that also
	// those are seen that find nothing, at two traps each. Otherwise they cost
	// nothing once the path that consumes completions is learned, where the
	// times in completion entries take the place of what empty polls tell.
	EmptyPolls bool
	// MaxOverhead is the share of the time of the threads that post and poll that
	// their probes may take, 0: any. It is kept by pauses in which these probes are
	// out, which events of KindPause tell of.
	MaxOverhead float64
	// Debug adds the verifier's log to errors.
	Debug bool
	// Opened is called by Run once every probe is in and events begin to count.
	Opened func()
	// Log takes progress and oddities; default: none.
	Log *slog.Logger
	// Host says where to read the facts of the machine.
	Host locate.Host

	// Tests put others in place of these.
	find      func(pid int) (finder, error)
	preflight func(pid int, host locate.Host) (*locate.Facts, error)
	// singleUprobes does without uprobe_multi links.
	singleUprobes bool
}

func (cfg *Config) setDefaults() error {
	if len(cfg.PIDs) == 0 && len(cfg.Command) == 0 {
		return errors.New("nothing to trace: neither a process nor a command is given")
	}
	if cfg.MaxOverhead < 0 || math.IsNaN(cfg.MaxOverhead) {
		return fmt.Errorf("the overhead cannot be limited to %v", cfg.MaxOverhead)
	}
	if cfg.RingBytes == 0 {
		cfg.RingBytes = 64 << 20
	}
	if cfg.Drain == 0 {
		cfg.Drain = 100 * time.Millisecond
	}
	if cfg.CommandStdout == nil {
		cfg.CommandStdout = os.Stdout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.find == nil {
		cfg.find = func(pid int) (finder, error) { return locate.Open(pid) }
	}
	if cfg.preflight == nil {
		cfg.preflight = locate.Preflight
	}
	if cfg.Host.ReturnProbesPass == nil {
		cfg.Host.ReturnProbesPass = sync.OnceValue(cfg.returnProbesPass)
	}
	cfg.FollowForks = cfg.FollowForks || len(cfg.Command) > 0
	return nil
}

// returnProbesPass tries whether return probes are safe under a seccomp filter.
func (cfg *Config) returnProbesPass() bool {
	pass, err := calibrate.PassesFilters(context.Background())
	cfg.Log.Debug("return probes under a seccomp filter", "pass", pass, "err", err)
	return pass && err == nil
}

// Tracer observes a set of processes. Its methods are for one goroutine.
type Tracer struct {
	cfg         Config
	kernel      *kernel
	reader      *reader
	links       links
	sampler     *sampler
	targets     *targets
	guard       *guard        // while processes may be held
	probes      []event.Probe // of the kernel; those of the targets are with them
	notes       []string
	losses      lossMeter
	stacks      *stackKeeper
	window      event.Window
	closing     uint64           // when the gate was about to close
	latest      uint64           // of the events that the gate lets through
	steal       facts.StolenTime // during the window; before it ends, what there was when it began
	host        event.Host
	devices     *facts.Devices
	lines       lineSet
	cgroups     *cgroupWatch
	cpus        ownCPUs
	trap        calibrate.Result
	undecodable uint64
}

// New finds the code to probe in every target, loads the programs and places
// the probes. Nothing is recorded yet. On error nothing is left behind.
func New(ctx context.Context, cfg Config) (*Tracer, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	t := &Tracer{cfg: cfg, host: facts.Host(), lines: lineSet{}, cgroups: newCgroupWatch()}
	if err := t.prepare(ctx); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tracer) prepare(ctx context.Context) error {
	if err := checkPIDNamespace("/proc/self/ns/pid"); err != nil {
		return err
	}
	files, err := fileLimit()
	if err != nil {
		return err
	}
	if err := checkOpenFiles(files, max(len(t.cfg.PIDs), 1)); err != nil {
		return err
	}
	targets, err := openTargets(ctx, &t.cfg)
	if err != nil {
		return err
	}
	t.targets = targets
	if t.kernel, err = loadKernel(&t.cfg); err != nil {
		return err
	}
	if !t.kernel.multi {
		t.cfg.Log.Debug("single uprobes", "why", t.kernel.single)
	}
	if len(t.cfg.Command) > 0 {
		if t.guard, err = startGuard(t.kernel.coll.Maps[bpf.RdmaMapTargets]); err != nil {
			return err
		}
	}
	rings := t.kernel.coll.Maps[bpf.RdmaMapRings]
	if t.reader, err = newReader(rings, t.kernel.cpus, ringSize(t.cfg.RingBytes, t.kernel.cpus)); err != nil {
		return err
	}
	var notes []string
	t.probes, notes = t.kernel.attachTracepoints(&t.links)
	t.notes = append(t.notes, notes...)
	if t.kernel.locks {
		t.notes = append(t.notes, mmapLockNote)
	}
	if t.stacks, err = newStackKeeper(t.kernel.stackSites()); err != nil {
		return err
	}
	if t.trap, err = calibrate.Run(ctx); err != nil {
		if t.cfg.MaxOverhead > 0 {
			return fmt.Errorf("limit the overhead: the cost of probes is unknown: %w", err)
		}
		t.notes = append(t.notes, "the cost of probes is unknown: "+err.Error())
	}
	if err := t.targets.attach(ctx, t.kernel, &t.links); err != nil {
		return err
	}
	t.sample(files)
	if err := t.kernel.findTasks(); err != nil {
		t.notes = append(t.notes, "the threads of the targets could not be listed: "+err.Error())
	}
	t.look()
	if err := t.cpus.avoid(t.cfg.PIDs, leastOwnCPUs); err != nil {
		t.notes = append(t.notes, "rdmatrace may run on the targets' CPUs: "+err.Error())
	}
	return nil
}

// checkPIDNamespace makes sure that process numbers here are those of the
// kernel, which the programs compare and record. The initial namespace has a
// fixed inode (PROC_PID_INIT_INO of the kernel's proc_ns.h).
func checkPIDNamespace(path string) error {
	const initial = "pid:[4026531836]"
	ns, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("find the PID namespace: %w", err)
	}
	if ns != initial {
		return errors.New("rdmatrace runs in a PID namespace of its own, where processes have other numbers than in the kernel: " +
			"run it in the host's (docker run --pid=host, hostPID: true); it traces processes in containers from there")
	}
	return nil
}

// Open files: those of programs, maps and what is read, and of each process its
// links, some for each library.
const (
	filesOfOurs    = 240
	filesOfProcess = 100 // with single uprobes, two for each site
)

// fileLimit is how many files we may have open at a time. The soft limit was raised to
// the hard one when the program began, by package os.
func fileLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return limit.Cur, nil
}

// filesNeeded may be open for the trace of so many processes.
func filesNeeded(processes int) uint64 {
	return uint64(filesOfOurs + facts.Host().CPUs + filesOfProcess*processes)
}

// checkOpenFiles makes sure that no probe will be missing for want of a file.
func checkOpenFiles(limit uint64, processes int) error {
	if need := filesNeeded(processes); limit < need {
		return fmt.Errorf("this may take %d open files, the limit is %d: raise it (ulimit -n), or trace fewer processes at a time", need, limit)
	}
	return nil
}

// sample sets up the clocks of the targets' threads, of as many as the limit of open
// files leaves room for.
func (t *Tracer) sample(files uint64) {
	var pids []int
	for _, tg := range t.targets.list() {
		pids = append(pids, tg.pid)
	}
	left := files - min(filesNeeded(len(pids)), files)
	most := int(min(left, clocksMost))
	clocks := clocksFor(pids, most, t.kernel.cpus, func(pid int) ([]int, error) { return locate.Threads(fmt.Sprintf("/proc/%d", pid)) })
	var probe event.Probe
	if t.sampler, probe = openSampler(clocks, t.cfg.Host, t.kernel.clock); probe.Error != "" {
		t.notes = append(t.notes, tracepointNote(probe))
	}
	t.probes = append(t.probes, probe)
}

// look reads what surrounds the events, as it is before they begin.
func (t *Tracer) look() {
	var roots []string
	for _, tg := range t.targets.list() {
		tg.look()
		t.stacks.watch(tg.pid)
		for _, r := range facts.SysfsRoots(uint32(tg.pid)) {
			if !slices.Contains(roots, r) {
				roots = append(roots, r)
			}
		}
	}
	t.devices = facts.SnapshotDevices(roots, nil)
}

// Run opens the gate and hands every event to sink, in the order of the rings:
// by time within a CPU, not across. The event is reused after sink returns.
// Run ends when ctx does, when all targets have ended, or with sink's error.
// The probes are still in when it returns: Close takes them out.
func (t *Tracer) Run(ctx context.Context, sink func(*event.Event) error) error {
	if err := t.open(sink); err != nil {
		return err
	}
	err := t.loop(ctx, sink)
	if t.window.End == 0 {
		err = errors.Join(err, t.shut())
	}
	if err != nil {
		return err
	}
	found := merge{sink: sink, events: t.targets.work.takeFound(t.window.End)}
	if err := t.reader.finish(found.before(t.take(sink))); err != nil {
		return err
	}
	if err := t.reportLosses(sink); err != nil {
		return err
	}
	// Whoever closed the gate may have waited for a CPU since: the window is not
	// longer than what was observed in it, and ends with its last event at least.
	t.window.End = max(t.closing, t.latest)
	return found.until(t.window.End + 1) // what was found later is no part of it
}

// shut closes the gate, which ends the window.
func (t *Tracer) shut() error {
	t.closing = monotonic()
	if err := t.kernel.setOpen(false); err != nil {
		return err
	}
	t.window.End = monotonic()
	t.devices.End()
	t.steal = facts.Steal().Since(t.steal)
	return t.sampler.run(false)
}

// open opens the gate, and begins the stream with the objects that exist.
func (t *Tracer) open(sink func(*event.Event) error) error {
	t.steal = facts.Steal()
	t.window.Begin = monotonic()
	t.losses.since(t.window.Begin)
	if err := t.targets.found(t.window.Begin, sink); err != nil {
		return err
	}
	if err := t.kernel.setOpen(true); err != nil {
		return err
	}
	t.devices.Begin() // to prepare took its time
	if err := t.kernel.findTasks(); err != nil {
		t.notes = append(t.notes, "what the threads did when the trace began is unknown: "+err.Error())
	}
	t.targets.work.pace.limit, t.targets.work.pace.trap = t.cfg.MaxOverhead, t.trap
	t.targets.work.begin()
	if err := t.sampler.run(true); err != nil {
		t.notes = append(t.notes, err.Error())
	}
	if t.cfg.Opened != nil {
		t.cfg.Opened()
	}
	return t.targets.release()
}

func (t *Tracer) loop(ctx context.Context, sink func(*event.Event) error) (err error) {
	take := t.take(sink)
	asked := make(chan struct{})
	var gate error
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		// Not after what is being read: under load that takes long.
		gate = t.shut()
		t.reader.wake()
	})
	defer func() {
		if !stop() {
			<-asked // the reader is closed next
			err = errors.Join(err, gate)
		}
	}()
	for ctx.Err() == nil {
		if err := t.reader.wait(t.cfg.Drain); err != nil {
			return err
		}
		found := merge{sink: sink}
		until := monotonic()
		if ctx.Err() == nil { // else what was found meanwhile may be after the window
			found.events = t.targets.work.takeFound(until)
		}
		if err := t.reader.drain(found.before(take)); err != nil {
			return err
		}
		if err := found.rest(); err != nil {
			return err
		}
		if err := t.reportLosses(sink); err != nil {
			return err
		}
		if all, err := t.targets.ended(t.kernel); all || err != nil {
			return err
		}
	}
	return nil
}

// Command is the program that was started, nil if none was.
func (t *Tracer) Command() *Command { return t.targets.cmd }

// halt ends the following: no probe is added any more, and as nobody would let
// a process go on, none is held.
func (t *Tracer) halt() error {
	if t.targets != nil {
		t.targets.halt()
	}
	if t.guard == nil {
		return nil
	}
	err := errors.Join(letGo(t.kernel.coll.Maps[bpf.RdmaMapTargets]), t.guard.dismiss())
	t.guard = nil
	return err
}

// Close takes the probes out and frees what was loaded. It may take seconds
// where the kernel attaches uprobes one by one.
func (t *Tracer) Close() error {
	var errs []error
	if t.kernel != nil && t.kernel.coll != nil {
		errs = append(errs, t.kernel.setOpen(false))
	}
	if t.targets != nil {
		errs = append(errs, t.targets.drop())
	}
	errs = append(errs, t.halt()) // what it attached after them would stay
	errs = append(errs, t.cpus.restore(), t.links.close(), t.cgroups.close())
	if t.sampler != nil {
		errs = append(errs, t.sampler.close())
	}
	if t.targets != nil {
		errs = append(errs, t.targets.close())
	}
	if t.stacks != nil {
		errs = append(errs, t.stacks.close())
	}
	if t.devices != nil {
		errs = append(errs, t.devices.Close())
	}
	if t.reader != nil {
		errs = append(errs, t.reader.close())
		t.reader = nil
	}
	if t.kernel != nil && t.kernel.coll != nil {
		t.kernel.coll.Close()
		t.kernel.coll = nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the probes out: %w", err)
	}
	return nil
}

// processCPU is the time this process ran, ns.
func processCPU() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}

// monotonic is the clock of every event, bpf_ktime_get_ns.
func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
