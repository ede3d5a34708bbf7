package calibrate

import (
	"context"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/again"
)

// Since Linux 6.11 a return probe on x86-64 makes the thread that it hits issue
// a system call (uretprobe, 335), which a seccomp filter that does not know it
// answers by killing the process. Later kernels, and some of distributions, let
// it pass every filter; which do is tested on a process of our own.

// PassesFilters reports whether return probes are safe on processes with a
// seccomp filter. An error: it is not known.
func PassesFilters(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := startProgram(ctx, filteredName)
	if err != nil {
		return false, err
	}
	defer c.stop()
	// It answers once it has its filter, and is the program.
	if _, err := c.run(c.program.emulated[pair], 1); err != nil {
		return false, err
	}
	p, err := newProbes()
	if err != nil {
		return false, err
	}
	defer p.close()
	if err := p.attach(c, c.program.emulated[pair], true); err != nil {
		return false, err
	}
	if _, err := c.run(c.program.emulated[pair], 1); err != nil {
		if ctx.Err() == nil && errors.Is(err, errKilled) {
			return false, nil
		}
		return false, err
	}
	_, between, err := p.read()
	if err != nil {
		return false, err
	}
	if len(between) == 0 {
		return false, errors.New("test return probes under a seccomp filter: they were not hit")
	}
	return true, nil
}

// filteredName is what this same program is started as, to become the program
// of its argument under a seccomp filter.
const filteredName = "rdmatrace-filtered"

func init() { again.As(filteredName, becomeFiltered) }

// System calls of x86-64 that probes make their target issue.
const (
	sysUretprobe = 335
	sysUprobe    = 336
)

// becomeFiltered runs a program that is killed by the system calls of probes.
func becomeFiltered(args []string) error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, then, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: then, Jf: otherwise}
	}
	code := []unix.SockFilter{
		load(0), // nr of struct seccomp_data
		equal(sysUretprobe, 1, 0),
		equal(sysUprobe, 0, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// On all threads: whichever of them makes the next call keeps it.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return unix.Exec(args[0], args, nil)
}
