package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// oneSize are the fields that BPF_CORE_READ may read: pointers, and integers of one size on
// every kernel, since they are what a system call or a shared ring hands out.
var oneSize = []string{
	"cfs_rq", "set_child_tid", "worker_private", "queue", "wq", // pointers
	"id", "tgid", "user_handle", "producer_index", "consumer_index",
	"di", "orig_ax", "orig_x0", "syscallno", // of pt_regs
}

var coreRead = regexp.MustCompile(`\bBPF_CORE_READ\((?:[^(),]+,\s*)+(?:[a-z_0-9]+\.)*([a-z_0-9]+)\)`)

// TestIntegersAreReadInTheirSize: BPF_CORE_READ reads as many bytes as our own vmlinux.h
// gives a field. The kernel's may be smaller, as that of task_struct's on_cpu since 7.3.
func TestIntegersAreReadInTheirSize(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(root, "bpf", "*.bpf.[ch]"))
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range coreRead.FindAllSubmatch(text, -1) {
			reads++
			if !slices.Contains(oneSize, string(m[1])) {
				t.Errorf("%s: %s: READ_INT reads an integer whatever its size is", filepath.Base(name), m[0])
			}
		}
	}
	if reads == 0 {
		t.Error("no BPF_CORE_READ is found: what is looked for is not what it was")
	}
}
