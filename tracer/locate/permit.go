package locate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Capabilities, by their bit in CapEff (include/uapi/linux/capability.h).
const (
	capSysPtrace     = 19
	capDACOverride   = 1
	capDACReadSearch = 2
	capSysAdmin      = 21
	capPerfmon       = 38
	capBPF           = 39
	capCheckpoint    = 40
)

// PreflightStart decides whether a program can be started and traced on this
// machine, before one is. The error is a *PreflightError.
func PreflightStart(host Host) error {
	f := newFacts(0, &host)
	for _, check := range []func(Host) error{f.permitted, f.kernelAllows} {
		if err := check(host); err != nil {
			return err
		}
	}
	return nil
}

// tracing is what is tried, for errors.
func (f *Facts) tracing() string {
	if f.PID == 0 {
		return "starting a program and tracing it"
	}
	return fmt.Sprintf("tracing process %d (%s)", f.PID, f.Comm)
}

// permitted: this process may load programs, attach them and read the target.
// CAP_SYS_ADMIN stands in for CAP_BPF and CAP_PERFMON (capabilities(7)).
func (f *Facts) permitted(host Host) error {
	b, err := os.ReadFile(host.Proc + "/self/status")
	if err != nil {
		return problem(Unreadable, f.PID, err, "read this process's capabilities: %v", err)
	}
	have, err := strconv.ParseUint(status(b, "CapEff"), 16, 64)
	if err != nil {
		return problem(Unreadable, f.PID, err, "read this process's capabilities: %v", err)
	}
	has := func(c uint) bool { return have>>c&1 != 0 }
	type capability struct {
		bit  uint
		name string
		or   uint // stands in for it
	}
	needs := []capability{
		{capBPF, "CAP_BPF", capSysAdmin}, {capPerfmon, "CAP_PERFMON", capSysAdmin},
		{capSysPtrace, "CAP_SYS_PTRACE", capSysPtrace}, {capDACReadSearch, "CAP_DAC_READ_SEARCH", capDACOverride},
	}
	if f.PID == 0 { // the dynamic linker is probed, through /proc/PID/map_files
		needs = append(needs, capability{capCheckpoint, "CAP_CHECKPOINT_RESTORE", capSysAdmin})
	}
	var all, missing []string
	for _, need := range needs {
		all = append(all, need.name)
		if !has(need.bit) && !has(need.or) {
			missing = append(missing, need.name)
		}
	}
	if len(missing) > 0 {
		e := problem(NotPermitted, f.PID, nil,
			"%s needs %s: run rdmatrace as root, or give its file all capabilities for that (setcap %s=ep)",
			f.tracing(), strings.Join(missing, ", "), strings.ToLower(strings.Join(all, ","))) // setcap takes away what it does not name
		e.Missing = missing
		return e
	}
	if m, err := os.ReadFile(host.Proc + "/self/uid_map"); err == nil && !wholeNamespace(m) && !has(capSysAdmin) {
		return problem(NotPermitted, f.PID, nil,
			"%s from inside a user namespace: its capabilities do not count for BPF; run rdmatrace on the host", f.tracing())
	}
	return f.paranoid(host, has(capSysAdmin))
}

// wholeNamespace: the uid map of the first user namespace.
func wholeNamespace(uidMap []byte) bool {
	return strings.Join(strings.Fields(string(uidMap)), " ") == "0 0 4294967295"
}

// paranoid: above 2, which only patched kernels know (Debian, Ubuntu,
// Android), perf_event_open asks for CAP_SYS_ADMIN.
func (f *Facts) paranoid(host Host, admin bool) error {
	b, err := os.ReadFile(host.Proc + "/sys/kernel/perf_event_paranoid")
	if err != nil {
		return nil // a kernel without perf events fails at the attach, with its own words
	}
	level, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil && level > 2 && !admin {
		return problem(PerfParanoid, f.PID, nil,
			"%s: kernel.perf_event_paranoid is %d, which asks for CAP_SYS_ADMIN to place probes: run rdmatrace as root, or sysctl kernel.perf_event_paranoid=2",
			f.tracing(), level)
	}
	return nil
}

// kernelAllows: the kernel has type information and lets BPF read memory.
func (f *Facts) kernelAllows(host Host) error {
	btf := host.Sys + "/kernel/btf/vmlinux"
	if _, err := os.Stat(btf); err != nil {
		return problem(NoBTF, f.PID, err,
			"the kernel has no type information (%s: %v): without it nothing can be traced here. It needs a kernel built with CONFIG_DEBUG_INFO_BTF=y, as all current distributions' are, and /sys to be mounted; rdmatrace report FILE works here, with a capture from elsewhere",
			btf, errors.Unwrap(err))
	}
	b, err := os.ReadFile(host.Sys + "/kernel/security/lockdown")
	if err == nil && bytes.Contains(b, []byte("[confidentiality]")) {
		return problem(Lockdown, f.PID, nil,
			"kernel lockdown is at \"confidentiality\": BPF programs may not read memory; boot with lockdown=integrity or without lockdown= to trace")
	}
	return nil
}

// grep says whether a stream holds want, and whether it holds anything.
func grep(r io.Reader, want []byte) (found, any bool) {
	buf := make([]byte, 0, 256<<10)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		any = any || n > 0
		if bytes.Contains(buf, want) {
			return true, true
		}
		if err != nil {
			return false, any
		}
		if keep := len(want) - 1; len(buf) > cap(buf)/2 {
			buf = append(buf[:0], buf[len(buf)-min(keep, len(buf)):]...)
		}
	}
}
