package locate

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// Problem is the kind of reason for which a process cannot be traced.
type Problem uint8

const (
	ProblemNone   Problem = iota
	NoSuchProcess         // also: exited meanwhile
	KernelThread          // has no user memory
	Zombie                // exited, not yet reaped
	NotPermitted          // Missing names the capabilities
	NoBTF                 // kernel without type information
	Lockdown              // kernel lockdown forbids reading user memory from BPF
	PerfParanoid          // perf_event_paranoid asks for more than CAP_PERFMON
	NoVerbs               // no libibverbs is mapped (yet)
	Bits32                // a 32-bit process
	Unreadable            // /proc cannot be read, or not in the form expected
)

// PreflightError says why a process cannot be traced: what was attempted on
// what, and what the user can do.
type PreflightError struct {
	Problem Problem
	PID     int
	Missing []string // capabilities, for NotPermitted
	Text    string
	Err     error // cause, may be nil
}

func (e *PreflightError) Error() string { return e.Text }
func (e *PreflightError) Unwrap() error { return e.Err }

// Host says where to read the facts of the machine; the zero value means the
// usual places. Tests put others.
type Host struct {
	Proc string // "/proc", but for the process's mappings and memory
	Sys  string // "/sys": kernel/btf, kernel/security
	// WaitForVerbs accepts a process that has no libibverbs mapped yet.
	WaitForVerbs bool
	// ReturnProbesPass says whether return probes were seen to pass the seccomp
	// filter of a process; nil: that is not known. Asked only where it matters.
	ReturnProbesPass func() bool
	// Store, unless nil, keeps the files that were opened for others.
	Store *image.Store
}

// Facts are what a plan for tracing a process has to know.
type Facts struct {
	PID     int
	NSPID   int // its number in its own PID namespace
	Comm    string
	Threads []int
	// Verbs: libibverbs is mapped, or an RDMA device is open.
	Verbs bool
	// Stopped: a signal or a debugger has stopped it; nothing will be seen of
	// it until it goes on.
	Stopped bool
	// Direct are mapped libraries that may hand work to the device without
	// calling verbs (UCX, DOCA, DPDK): what they do is not seen by probes on
	// verbs.
	Direct []string
	// Seccomp: some thread has a system call filter.
	Seccomp bool
	// UretprobeSyscall: on this kernel a return probe makes the traced thread
	// issue a system call of its own, which filters are asked about, or it is not
	// known that it does not.
	// Looked for only with Seccomp.
	UretprobeSyscall bool
	// NoReturnProbes is why return probes must not be used on this process;
	// empty: they may.
	NoReturnProbes string
	// GoRuntime: the executable is a Go program, whose stacks move: no return
	// probes on Go code (C libraries called from it are on other stacks).
	GoRuntime bool

	proc string // the process's directory
}

// Preflight decides whether process pid can be traced on this machine. The
// error is a *PreflightError.
func Preflight(pid int, host Host) (*Facts, error) {
	f := newFacts(pid, &host)
	for _, check := range []func(Host) error{
		f.exists, f.permitted, f.kernelAllows, f.wordSize, f.usesVerbs,
	} {
		if err := check(host); err != nil {
			return nil, f.meanwhile(err)
		}
	}
	f.returnProbes(host)
	return f, nil
}

// NoReturnProbes is why return probes must not be used on a process as it is
// now; empty: they may. A process that was examined before may have set a
// seccomp filter since, and the children of one were not examined.
func NoReturnProbes(pid int, host Host) string {
	f := newFacts(pid, &host)
	var err error
	if f.Threads, err = Threads(f.proc); err != nil {
		return "" // it has ended: attaching says so
	}
	f.returnProbes(host)
	return f.NoReturnProbes
}

// newFacts knows nothing yet; it puts the usual places into host.
func newFacts(pid int, host *Host) *Facts {
	if host.Proc == "" {
		host.Proc = "/proc"
	}
	if host.Sys == "" {
		host.Sys = "/sys"
	}
	return &Facts{PID: pid, proc: fmt.Sprintf("%s/%d", host.Proc, pid)}
}

// meanwhile turns errors of a process that has gone into one that says so.
func (f *Facts) meanwhile(err error) error {
	var p *PreflightError
	if errors.As(err, &p) {
		return p
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, errGone) {
		return problem(NoSuchProcess, f.PID, err, "process %d exited while it was examined: choose one that still runs", f.PID)
	}
	return problem(Unreadable, f.PID, err, "examine process %d: %v", f.PID, err)
}

func problem(p Problem, pid int, err error, format string, args ...any) *PreflightError {
	return &PreflightError{Problem: p, PID: pid, Err: err, Text: fmt.Sprintf(format, args...)}
}

// processFile reads a file of the process.
func (f *Facts) processFile(name string) ([]byte, error) {
	return os.ReadFile(f.proc + "/" + name)
}

// status is a field of a /proc/.../status file.
func status(b []byte, field string) string {
	for line := range bytes.Lines(b) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

const pfKthread = 0x00200000 // PF_KTHREAD, include/linux/sched.h

// exists: it is a process, with user memory.
func (f *Facts) exists(Host) error {
	b, err := f.processFile("status")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return problem(NoSuchProcess, f.PID, err, "process %d does not exist in this PID namespace: look for the job with ps or pgrep", f.PID)
	}
	if err != nil {
		return err
	}
	f.Comm = status(b, "Name")
	if tgid := status(b, "Tgid"); tgid != strconv.Itoa(f.PID) {
		return problem(NoSuchProcess, f.PID, nil, "%d is a thread of process %s: give the process", f.PID, tgid)
	}
	ns := strings.Fields(status(b, "NSpid"))
	f.NSPID = f.PID
	if len(ns) > 0 {
		f.NSPID, _ = strconv.Atoi(ns[len(ns)-1])
	}
	state := status(b, "State")
	f.Stopped = strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
	switch {
	case strings.HasPrefix(state, "Z"), strings.HasPrefix(state, "X"):
		// A leader that called pthread_exit is one until the last thread ends; its entry in
		// /proc has no memory any more (exit_mm of kernel/exit.c).
		if threads, err := Threads(f.proc); err == nil && len(threads) > 1 {
			return problem(Zombie, f.PID, nil, "the main thread of process %d (%s) has ended, though others run on: with it the kernel's account of the process's memory is gone, so it cannot be traced: let main wait for the others instead (pthread_join)", f.PID, f.Comm)
		}
		return problem(Zombie, f.PID, nil, "process %d (%s) has exited and waits for its parent to collect its status: there is nothing left to trace", f.PID, f.Comm)
	}
	stat, err := f.processFile("stat")
	if err != nil {
		return err
	}
	if flags, ok := statFlags(stat); ok && flags&pfKthread != 0 {
		return problem(KernelThread, f.PID, nil, "process %d (%s) is a kernel thread: it has no verbs calls to trace", f.PID, f.Comm)
	}
	f.Threads, err = Threads(f.proc)
	return err
}

// statFlags is field 9 of /proc/PID/stat; the name before it may hold anything.
func statFlags(stat []byte) (uint64, bool) {
	i := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[i+1:])
	if i < 0 || len(fields) < 7 {
		return 0, false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return flags, err == nil
}

// Threads lists the threads of the process whose directory in /proc is proc.
func Threads(proc string) ([]int, error) {
	entries, err := os.ReadDir(proc + "/task")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out, nil
}

// wordSize: BPF programs and layouts are those of 64-bit processes.
func (f *Facts) wordSize(Host) error {
	exe, err := os.Open(f.proc + "/exe")
	if err != nil {
		return err
	}
	defer exe.Close()
	file, err := image.NewFile(exe, "exe")
	if err == nil {
		f.GoRuntime = file.ELF.Section(".go.buildinfo") != nil
		return nil
	}
	var head [5]byte
	if _, err := exe.ReadAt(head[:], 0); err == nil && string(head[:]) == "\x7fELF\x01" {
		return problem(Bits32, f.PID, nil, "process %d (%s) is a 32-bit program: only 64-bit processes can be traced", f.PID, f.Comm)
	}
	return err
}

// usesVerbs: a libibverbs is mapped, or will be waited for.
func (f *Facts) usesVerbs(host Host) error {
	store := host.Store
	if store == nil {
		store = image.NewStore()
		defer store.Close()
	}
	p, err := OpenIn(store, f.PID)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := f.awaitLinker(p); err != nil {
		return err
	}
	// A program with an open device and no libibverbs has it linked in.
	f.Verbs = p.hasVerbs() || p.openDevices() > 0
	for _, l := range p.libs {
		if l.Role&(RoleDirect|RoleUCX) != 0 {
			f.Direct = append(f.Direct, l.Path)
		}
	}
	if notes := store.Notes(); !f.Verbs && len(notes) > 0 {
		return problem(Unreadable, f.PID, nil, "examine process %d (%s): whether it uses RDMA verbs is not known, since %s", f.PID, f.Comm, notes[0])
	}
	if !f.Verbs && !host.WaitForVerbs {
		return problem(NoVerbs, f.PID, nil, "process %d (%s) does not use RDMA verbs (yet): no libibverbs is mapped. Give the process that communicates (a rank, not its launcher), or wait until it has opened the device", f.PID, f.Comm)
	}
	return nil
}

// linkerPatience bounds how long a dynamic linker is waited for.
const linkerPatience = 5 * time.Second

// awaitLinker waits for libibverbs where the program needs it, by its own table,
// and the dynamic linker has not mapped it yet: it was caught at its start.
func (f *Facts) awaitLinker(p *Process) error {
	if p.hasVerbs() || f.Stopped || !f.needsVerbs() {
		return nil
	}
	for deadline := time.Now().Add(linkerPatience); !p.hasVerbs() && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := p.Refresh(); err != nil {
			return err
		}
	}
	return nil
}

// needsVerbs: the executable has libibverbs among the libraries that it needs.
func (f *Facts) needsVerbs() bool {
	exe, err := os.Open(f.proc + "/exe")
	if err != nil {
		return false
	}
	defer exe.Close()
	file, err := elf.NewFile(exe)
	if err != nil {
		return false
	}
	needed, err := file.ImportedLibraries()
	return err == nil && slices.ContainsFunc(needed, func(name string) bool { return strings.HasPrefix(name, "libibverbs.so") })
}

// returnProbes: since Linux 6.11 a return probe on x86-64 makes the traced
// thread issue a system call (uretprobe, number 335); a seccomp filter that
// does not know it kills the process.
func (f *Facts) returnProbes(host Host) {
	for _, tid := range f.Threads {
		b, err := f.processFile(fmt.Sprintf("task/%d/status", tid))
		if err != nil {
			continue // the thread has ended
		}
		if mode := status(b, "Seccomp"); mode != "" && mode != "0" {
			f.Seccomp = true
		}
	}
	passes := host.ReturnProbesPass
	f.UretprobeSyscall = f.Seccomp && runtime.GOARCH == "amd64" && uretprobeSyscall(host.Proc) && (passes == nil || !passes())
	if f.UretprobeSyscall {
		f.NoReturnProbes = "a thread has a seccomp filter, and on this kernel a return probe issues a system call that the filter may not know: the process could be killed"
	}
}

// uretprobeSyscall says whether the kernel may have the system call: its name
// is among the kernel's symbols, or these cannot be read.
func uretprobeSyscall(proc string) bool {
	f, err := os.Open(proc + "/kallsyms")
	if err != nil {
		return true
	}
	defer f.Close()
	found, any := grep(f, []byte(" __x64_sys_uretprobe\n"))
	return found || !any
}
