package locate

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
	PerfParanoid          // perf_event_paranoid and no CAP_PERFMON
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
	Proc string // "/proc"
	Sys  string // "/sys"
	// WaitForVerbs accepts a process that has no libibverbs mapped yet.
	WaitForVerbs bool
}

// Facts are what a plan for tracing a process has to know.
type Facts struct {
	PID     int
	NSPID   int // its number in its own PID namespace
	Comm    string
	Threads []int
	// Verbs: libibverbs is mapped.
	Verbs bool
	// Seccomp: some thread has a system call filter.
	Seccomp bool
	// UretprobeSyscall: on this kernel a return probe makes the traced thread
	// issue a system call of its own, or it is not known that it does not.
	UretprobeSyscall bool
	// NoReturnProbes is why return probes must not be used on this process;
	// empty: they may.
	NoReturnProbes string
	// GoRuntime: the executable is a Go program, whose stacks move: no return
	// probes on Go code (C libraries called from it are on other stacks).
	GoRuntime bool
}

// Preflight decides whether process pid can be traced on this machine. The
// error is a *PreflightError.
func Preflight(pid int, host Host) (*Facts, error) { return nil, errUnfinished }
