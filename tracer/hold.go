package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/again"
)

// Programs stop the command that we started and its descendants until probes
// are in. Whoever lets them go on may be killed with -9, so a process of its own
// stands by: the guard. It shares the map of targets, which has all that may be
// held, and a pipe, which closes when we end, however that is.
//
// The kernel sends SIGHUP to a process group that has become an orphan while a
// member stands still (kill_orphaned_pgrp of kernel/exit.c), as it would by our
// end. So the guard has a child, the anchor, in our group: a group with a
// member whose parent is of another group of the session is no orphan. The
// anchor's end would make it one just so, with whoever stands still there for
// reasons of their own; so it leaves the group first, which the kernel takes no
// notice of.

// What the two are started as; they are this same program.
const (
	guardName  = "rdmatrace-guard"
	anchorName = "rdmatrace-anchor"
)

func init() {
	again.As(guardName, guardDuty)
	again.As(anchorName, anchorDuty)
}

// anchorDuty stays until the guard has ended.
func anchorDuty([]string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	_, _ = os.Stdin.Read(make([]byte, 1)) // it ends with an error, as nothing is written
	return unix.Setpgid(0, 0)
}

// The guard's descriptors, as exec.Cmd.ExtraFiles numbers them.
const (
	guardPipe    = 3
	guardTargets = 4
)

// guardDuty waits for the end of the tracer, which is of this process group. One
// that says good-bye has let all go.
func guardDuty(args []string) error {
	pgid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	anchor := again.Command(context.Background(), anchorName)
	anchor.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
	hold, err := anchor.StdinPipe()
	if err != nil {
		return err
	}
	if err := anchor.Start(); err != nil {
		return err
	}
	defer func() { hold.Close(); anchor.Wait() }() // its status tells nothing
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		return err
	}
	if n, _ := os.NewFile(guardPipe, "pipe").Read(make([]byte, 1)); n > 0 {
		return nil
	}
	m, err := ebpf.NewMapFromFD(guardTargets)
	if err != nil {
		return err
	}
	return letGo(m)
}

// guard is the process that stands by.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startGuard(targets *ebpf.Map) (g *guard, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the guard of held processes: %w", err)
		}
	}()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	fd, err := unix.FcntlInt(uintptr(targets.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	file := os.NewFile(uintptr(fd), "targets")
	defer file.Close()
	cmd := again.Command(context.Background(), guardName, strconv.Itoa(unix.Getpgrp()))
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{read, file}
	// Out of the group that a terminal's Ctrl-C or a kill of the job is sent to.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ready, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	g = &guard{cmd, write}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(err, g.dismiss())
	}
	return g, nil
}

// dismiss ends the guard, once nothing is held any more.
func (g *guard) dismiss() error {
	_, err := g.pipe.Write([]byte{1})
	if err = errors.Join(err, g.pipe.Close(), g.cmd.Wait()); err != nil {
		return fmt.Errorf("dismiss the guard of held processes: %w", err)
	}
	return nil
}

// letGo ends the holding of processes, and lets those that are held go on.
func letGo(targets *ebpf.Map) error {
	var held []uint32
	for {
		some, err := unhold(targets)
		if err != nil {
			return fmt.Errorf("end the holding of processes: %w", err)
		}
		if len(some) == 0 {
			break
		}
		held = append(held, some...)
		// A program that runs may have read the old flag, and may stop its process
		// or pass it on to a child: the next round finds that.
		waitForPrograms()
	}
	var errs []error
	for _, pid := range held {
		errs = append(errs, resume(int(pid)))
	}
	return errors.Join(errs...)
}

// unhold takes the flag from all targets that have it, and gives these.
func unhold(targets *ebpf.Map) (held []uint32, err error) {
	var pid uint32
	var t bpf.RdmaTarget
	each := targets.Iterate()
	for each.Next(&pid, &t) {
		if t.Flags&targetHold != 0 {
			held = append(held, pid)
		}
	}
	if err := each.Err(); err != nil {
		return nil, err
	}
	for _, pid := range held {
		err := targets.Update(pid, bpf.RdmaTarget{}, ebpf.UpdateExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, err
		}
	}
	return held, nil
}

// waitForPrograms waits until all programs that run now have ended: they do so
// within a read-side section of RCU, whose end membarrier's global command waits
// for (kernel/sched/membarrier.c: synchronize_rcu). Where CPUs are nohz_full it
// refuses. An update of a map of maps waits for the same
// (maybe_wait_bpf_programs of kernel/bpf/syscall.c), so that is used there.
func waitForPrograms() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno == 0 {
		return
	}
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return
	}
	defer outer.Close()
	if m, err := ebpf.NewMap(inner); err == nil {
		_ = outer.Put(uint32(0), m)
		m.Close()
	}
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of <linux/membarrier.h>.
const membarrierGlobal = 1
