package locate

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// idle starts a program that waits for the end of its input.
func idle(t *testing.T, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if len(args) == 0 {
		if !bufio.NewScanner(out).Scan() {
			t.Fatalf("%s said nothing", name)
		}
	}
	return cmd.Process.Pid
}

// write makes files below a directory, from path and contents in turn.
func write(t *testing.T, dir string, files ...string) string {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	allCaps   = "000001ffffffffff"
	rootMap   = "         0          0 4294967295\n"
	btf       = "kernel/btf/vmlinux"
	ordinary  = "Name:\tjob\nState:\tS (sleeping)\nTgid:\t4194381\nNSpid:\t4194381\t5\nSeccomp:\t0\n"
	userFlags = "4194381 (a) b) S 1 4194381 4194381 0 -1 4194304 0\n"
)

// machine is a /proc with one process, 4194381, and a /sys, in which files can be
// other than usual.
func fakeMachine(t *testing.T, other ...string) Host {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := Host{
		Proc: write(t, filepath.Join(dir, "proc"), "self/status", "CapEff:\t"+allCaps+"\n", "self/uid_map", rootMap,
			"sys/kernel/perf_event_paranoid", "2\n", "4194381/status", ordinary, "4194381/stat", userFlags, "4194381/task/4194381/status", ordinary,
			"kallsyms", "0000000000000000 T __x64_sys_read\n"),
		Sys: write(t, filepath.Join(dir, "sys"), btf, "", "kernel/security/lockdown", "[none] integrity confidentiality\n"),
	}
	if err := os.Symlink(exe, filepath.Join(h.Proc, "4194381/exe")); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(other); i += 2 {
		path := filepath.Join(dir, other[i])
		_ = os.Remove(path)
		if other[i+1] != "" {
			write(t, dir, other[i], other[i+1])
		}
	}
	return h
}

// TestPreflightProblems: each problem gives its own error, which says what was
// tried on what and what can be done.
func TestPreflightProblems(t *testing.T) {
	noBPF, noPtrace, noPerf, onlyAdmin := "0000000000000000", "000001fffff7ffff", "000001bfffdfffff", "0000000000280004"
	elf32 := "\x7fELF\x01\x01\x01" + strings.Repeat("\x00", 60)
	tests := []struct {
		name    string
		other   []string
		want    Problem
		missing []string
		says    []string
	}{
		{"none: it gets to the mappings, which are a real process's", nil, NoSuchProcess, nil, []string{"process 4194381", "exited"}},
		{"no such process", []string{"proc/4194381/status", ""}, NoSuchProcess, nil, []string{"process 4194381", "does not exist", "pgrep"}},
		{"a thread", []string{"proc/4194381/status", strings.Replace(ordinary, "Tgid:\t4194381", "Tgid:\t70", 1)}, NoSuchProcess, nil,
			[]string{"thread of process 70"}},
		{"zombie", []string{"proc/4194381/status", strings.Replace(ordinary, "S (sleeping)", "Z (zombie)", 1)}, Zombie, nil,
			[]string{"process 4194381 (job)", "has exited"}},
		{"zombie with threads", []string{"proc/4194381/status", strings.Replace(ordinary, "S (sleeping)", "Z (zombie)", 1), "proc/4194381/task/4194382/status", ordinary},
			Zombie, nil, []string{"main thread of process 4194381 (job) has ended", "others run on"}},
		{"kernel thread", []string{"proc/4194381/stat", "4194381 (kworker/0:1) I 2 0 0 0 -1 69238880 0\n"}, KernelThread, nil,
			[]string{"process 4194381 (job)", "kernel thread"}},
		{"no capability", []string{"proc/self/status", "CapEff:\t" + noBPF + "\n"}, NotPermitted,
			[]string{"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}, []string{"CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH", "as root"}},
		{"three of four", []string{"proc/self/status", "CapEff:\t000000c000080000\n"}, NotPermitted,
			[]string{"CAP_DAC_READ_SEARCH"}, []string{"needs CAP_DAC_READ_SEARCH:", "setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search=ep"}},
		{"root without ptrace", []string{"proc/self/status", "CapEff:\t" + noPtrace + "\n"}, NotPermitted,
			[]string{"CAP_SYS_PTRACE"}, []string{"needs CAP_SYS_PTRACE:"}},
		{"neither perfmon nor admin", []string{"proc/self/status", "CapEff:\t" + noPerf + "\n"}, NotPermitted,
			[]string{"CAP_PERFMON"}, []string{"needs CAP_PERFMON:"}},
		{"admin stands in for both", []string{"proc/self/status", "CapEff:\t" + onlyAdmin + "\n"}, NoSuchProcess, nil, nil},
		{"capabilities are not there", []string{"proc/self/status", "Name:\tx\n"}, Unreadable, nil, []string{"capabilities"}},
		{"inside a user namespace", []string{"proc/self/status", "CapEff:\t000001ffffdfffff\n", "proc/self/uid_map", "0 1000 1\n"},
			NotPermitted, nil, []string{"user namespace", "on the host"}},
		{"paranoid", []string{"proc/self/status", "CapEff:\t000001ffffdfffff\n", "proc/sys/kernel/perf_event_paranoid", "4\n"},
			PerfParanoid, nil, []string{"perf_event_paranoid is 4", "sysctl"}},
		{"paranoid, but admin", []string{"proc/sys/kernel/perf_event_paranoid", "4\n"}, NoSuchProcess, nil, nil},
		{"no BTF", []string{"sys/" + btf, ""}, NoBTF, nil, []string{"CONFIG_DEBUG_INFO_BTF", "kernel/btf/vmlinux", "rdmatrace report FILE"}},
		{"lockdown", []string{"sys/kernel/security/lockdown", "none integrity [confidentiality]\n"}, Lockdown, nil,
			[]string{"lockdown", "confidentiality"}},
		{"lockdown of integrity allows it", []string{"sys/kernel/security/lockdown", "none [integrity] confidentiality\n"}, NoSuchProcess, nil, nil},
		{"32 bits", []string{"proc/4194381/exe", elf32}, Bits32, nil, []string{"process 4194381 (job)", "32-bit"}},
		{"exited meanwhile", []string{"proc/4194381/exe", ""}, NoSuchProcess, nil, []string{"process 4194381 exited while"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Preflight(4194381, fakeMachine(t, tt.other...))
			var p *PreflightError
			if !errors.As(err, &p) {
				t.Fatalf("%+v, %v", f, err)
			}
			if p.Problem != tt.want || p.PID != 4194381 || !slices.Equal(p.Missing, tt.missing) {
				t.Errorf("%+v", p)
			}
			for _, s := range tt.says {
				if !strings.Contains(p.Error(), s) {
					t.Errorf("%q does not say %q", p.Error(), s)
				}
			}
		})
	}
}

// TestPreflightStart: what forbids to start a program is said before one is started.
func TestPreflightStart(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other []string
		want  string // of the error; empty: it may start
	}{
		{"root", nil, ""},
		{"nobody", []string{"proc/self/status", "CapEff:\t0000000000000000\n"},
			"starting a program and tracing it needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE: run rdmatrace as root"},
		{"what -p needs", []string{"proc/self/status", "CapEff:\t000000c000080004\n"}, "needs CAP_CHECKPOINT_RESTORE:"},
		{"and the fifth", []string{"proc/self/status", "CapEff:\t000001c000080004\n"}, ""},
		{"admin stands in for it", []string{"proc/self/status", "CapEff:\t0000000000280004\n"}, ""},
		{"inside a user namespace", []string{"proc/self/status", "CapEff:\t000001ffffdfffff\n", "proc/self/uid_map", "0 1000 1\n"},
			"starting a program and tracing it from inside a user namespace"},
		{"paranoid", []string{"proc/self/status", "CapEff:\t000001ffffdfffff\n", "proc/sys/kernel/perf_event_paranoid", "4\n"},
			"starting a program and tracing it: kernel.perf_event_paranoid is 4"},
		{"no BTF", []string{"sys/" + btf, ""}, "CONFIG_DEBUG_INFO_BTF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := PreflightStart(fakeMachine(t, tt.other...))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestPreflightProcess: what is found of real processes.
func TestPreflightProcess(t *testing.T) {
	testenv.Root(t)
	if _, err := os.Stat("/sys/" + btf); err != nil {
		testenv.Missing(t, "needs a kernel with type information: %v", err)
	}
	t.Run("one without RDMA", func(t *testing.T) {
		pid := idle(t, "cat", "-")
		_, err := Preflight(pid, Host{})
		var p *PreflightError
		if !errors.As(err, &p) || p.Problem != NoVerbs || !strings.Contains(p.Text, "no libibverbs is mapped") ||
			!strings.Contains(p.Text, fmt.Sprintf("process %d (cat)", pid)) {
			t.Fatalf("%v", err)
		}
		f, err := Preflight(pid, Host{WaitForVerbs: true})
		if err != nil || f.Verbs || f.Comm != "cat" || len(f.Threads) != 1 || f.GoRuntime || f.Seccomp || f.NoReturnProbes != "" {
			t.Errorf("%+v, %v", f, err)
		}
		s := scan(t, openProcess(t, pid))
		if len(s.Contexts)+len(s.QPs)+len(s.CQs)+len(s.Functions)+len(s.Libraries) != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("a zombie", func(t *testing.T) {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }()
		await(t, cmd.Process.Pid, "it was a zombie", func() bool {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			return strings.Contains(string(b), "Z (zombie)")
		})
		_, err := Preflight(cmd.Process.Pid, Host{})
		var p *PreflightError
		if !errors.As(err, &p) || p.Problem != Zombie {
			t.Errorf("%v", err)
		}
		if _, err := Open(cmd.Process.Pid); err == nil {
			t.Error("a zombie was opened")
		}
	})
	t.Run("Go", func(t *testing.T) {
		f, err := Preflight(os.Getpid(), Host{WaitForVerbs: true})
		if err != nil || !f.GoRuntime || len(f.Threads) < 2 {
			t.Errorf("%+v, %v", f, err)
		}
	})
	t.Run("seccomp", func(t *testing.T) {
		tool(t, "gcc")
		bin := filepath.Join(t.TempDir(), "seccomp")
		run(t, exec.Command("gcc", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", bin, "testdata/seccomp.c"))
		pid := idle(t, bin)
		dir := t.TempDir()
		for _, tt := range []struct {
			symbols string
			syscall bool
		}{
			{"ffff T __x64_sys_uprobe\nffff T __x64_sys_uretprobe\n", true},
			{"ffff T __x64_sys_read\n", false},
			{"", true}, // nothing can be read: it is not known that it has none
		} {
			symbols := strings.Repeat("ffffffff81000000 t some_other_symbol_of_the_kernel\n", 20000) + tt.symbols
			if tt.symbols == "" {
				symbols = ""
			}
			f, err := preflightWith(t, pid, write(t, dir, "kallsyms", symbols))
			if err != nil || !f.Seccomp || f.UretprobeSyscall != tt.syscall || tt.syscall != (f.NoReturnProbes != "") {
				t.Errorf("symbols %q: %+v, %v", tt.symbols, f, err)
			}
		}
	})
}

// preflightWith is Preflight with another list of the kernel's symbols.
func preflightWith(t *testing.T, pid int, dir string) (*Facts, error) {
	t.Helper()
	for _, name := range []string{"self", "sys", fmt.Sprint(pid)} {
		if err := os.Symlink("/proc/"+name, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return Preflight(pid, Host{Proc: dir, WaitForVerbs: true})
}

// TestPreflightDirect: a library that may go past verbs is named.
func TestPreflightDirect(t *testing.T) {
	testenv.Root(t)
	tool(t, "gcc")
	installed(t)
	lib := filepath.Join(t.TempDir(), "libdirect.so")
	src := filepath.Join(t.TempDir(), "direct.c")
	write(t, filepath.Dir(src), "direct.c", `
		int mlx5dv_init_obj(void *, unsigned long long);
		void *mlx5dv_devx_alloc_uar(void *, unsigned);
		int uct_ib_post(void *x) { return mlx5dv_init_obj(x, 1) + !mlx5dv_devx_alloc_uar(x, 0); }`)
	run(t, exec.Command("gcc", "-shared", "-fPIC", "-o", lib, src, "-lmlx5"))
	t.Setenv("LD_PRELOAD", lib)
	pid := idle(t, "cat", "-")
	os.Unsetenv("LD_PRELOAD")
	await(t, pid, "it had its libraries", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		return strings.Contains(string(b), "libmlx5")
	})
	f, err := Preflight(pid, Host{})
	if err != nil || !f.Verbs || !slices.Equal(f.Direct, []string{lib}) {
		t.Fatalf("%+v, %v", f, err)
	}
	s := scan(t, openProcess(t, pid))
	i := slices.IndexFunc(s.Libraries, func(l *Library) bool { return l.Path == lib })
	if i < 0 || s.Libraries[i].Role != RoleDirect|RoleUCX {
		t.Errorf("%+v", s.Libraries)
	}
	if len(s.Functions.Of(MLX5InitObj)) != 1 || len(s.Functions.Of(PollCQ)) < 2 || len(s.Contexts) != 0 {
		t.Errorf("contexts %v, functions %+v", s.Contexts, s.Functions)
	}
}

// TestPreflightJob: a program that uses the device passes.
func TestPreflightJob(t *testing.T) {
	prog := device(t).objects(t)
	f, err := Preflight(prog.pid, Host{})
	if err != nil || !f.Verbs || f.Comm != "objects" || f.NSPID != prog.pid || len(f.Direct) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}
