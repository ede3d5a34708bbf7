package guest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestProbes traces a program that waits, and asks the kernel what is attached.
func TestProbes(t *testing.T) {
	testenv.Root(t)
	// The shell waits for its input's end.
	tr := startTrace(t, "--", "sh", "-c", "read line || :")
	before := linkTypes(t, tr.Process.Pid)
	tr.input.Close()
	got := tr.result(t)
	if before[link.TracingType]+before[link.RawTracepointType] == 0 {
		t.Errorf("no tracepoint is attached: %v", before)
	}
	// The cost of a trap is measured by probes one by one on any kernel.
	switch {
	case before[link.UprobeMultiType] > 0:
		feature("uprobes", "uprobe_multi")
	case before[link.PerfEventType] > 0:
		feature("uprobes", "one by one")
	default:
		t.Errorf("no uprobe is attached: %v", before)
	}
	tracepoints(t, got)
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	feature("sched_switch", "%d arguments", arguments(t, types, "sched_switch"))
}

// tracepoints reports what became of each; x_entry and x_exit are one.
func tracepoints(t *testing.T, got *traced) {
	t.Helper()
	errors := map[string]string{}
	var names []string
	for _, p := range got.Probes {
		if strings.HasPrefix(p.Kind, "f") || p.Kind == "perf_event" {
			feature(p.Kind+" "+p.Name, "%s", cmp.Or(p.Error, "attached"))
			if p.Error != "" {
				t.Errorf("%s: %s", p.Name, p.Error)
			}
		}
		if p.Kind != "tp_btf" {
			continue
		}
		name := strings.TrimSuffix(p.Name, "_entry")
		if before, ok := strings.CutSuffix(p.Name, "_exit"); ok && slices.Contains(names, before) {
			name = before
		} else {
			names = append(names, name)
		}
		if p.Error != "" {
			errors[name] = p.Error
			if !strings.Contains(p.Error, "has no tracepoint") {
				t.Errorf("%s: %s", p.Name, p.Error)
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("tracepoints: only %v", names)
	}
	slices.Sort(names)
	for _, name := range names {
		if why := errors[name]; why != "" {
			feature("tracepoint "+name, "%s", why)
		} else {
			feature("tracepoint "+name, "attached")
		}
	}
}

// linkTypes counts the BPF links that a process holds by their kind: others on
// the machine may trace as well.
func linkTypes(t *testing.T, pid int) map[link.Type]int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[link.Type]int{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if m := linkID.FindSubmatch(b); m != nil {
			counts[linkType(t, string(m[1]))]++
		}
	}
	return counts
}

// linkID is in what bpf_link_show_fdinfo prints (kernel/bpf/syscall.c).
var linkID = regexp.MustCompile(`(?m)^link_id:\s+(\d+)$`)

func linkType(t *testing.T, id string) link.Type {
	t.Helper()
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.NewFromID(link.ID(n))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.Type
}

// arguments of a tracepoint; the first of its prototype is the kernel's own.
func arguments(t *testing.T, types *btf.Spec, tracepoint string) int {
	t.Helper()
	var def *btf.Typedef
	if err := types.TypeByName("btf_trace_"+tracepoint, &def); err != nil {
		t.Fatal(err)
	}
	if ptr, ok := def.Type.(*btf.Pointer); ok {
		if proto, ok := ptr.Target.(*btf.FuncProto); ok {
			return len(proto.Params) - 1
		}
	}
	t.Fatalf("%s is a %v", tracepoint, def.Type)
	return 0
}
