package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestCopies traces two programs at once, of which one has the provider as its
// container has it: another file at the same path, which has been deleted meanwhile.
func TestCopies(t *testing.T) {
	if _, err := exec.LookPath("unshare"); err != nil {
		testenv.Missing(t, "needs unshare: %v", err)
	}
	providers, err := filepath.Glob("/usr/lib/*/libibverbs/libmlx5-rdmav*.so")
	if err != nil || len(providers) == 0 {
		testenv.Missing(t, "needs the mlx5 provider")
	}
	provider, err := filepath.EvalSymlinks(providers[0])
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(t.TempDir(), "copy.so")
	d := startDevice(t)
	const job = "oracle-poller op=read"
	usual := d.job(t, job)
	contained := d.run(t, append([]string{"unshare", "-m", "sh", "-c",
		`cp "$1" "$0" && mount --bind "$0" "$1" && rm "$0" && shift && exec taskset -c 1 "$@"`, mine, provider}, jobArgv(t, job)...)...)
	waitFor(t, "the one with a copy to begin", func() bool {
		contained.running(t)
		return strings.Contains(contained.output.String(), "running\n")
	})
	if a, b := mapped(t, usual, "libmlx5"), mapped(t, contained, "libmlx5"); a == b || a == "" || b == "" {
		t.Fatalf("one has inode %q, the other %q: the test sees nothing", a, b)
	}
	tr := startTrace(t, nil, "-p", fmt.Sprintf("%d,%d", usual.Process.Pid, contained.Process.Pid))
	tr.sees(t, 4000)
	got := tr.stop(t)
	got.balance(t)
	usual.stop()
	contained.stop()
	by := map[uint32]int{}
	for _, w := range match(t, got, d.truth(t)) {
		by[w.PID]++
	}
	for _, p := range []*program{usual, contained} {
		if n := by[uint32(p.Process.Pid)]; n < 100 {
			t.Errorf("%d work requests of process %d were measured; %q", n, p.Process.Pid, got.ctx.Notes)
		}
	}
}

// mapped is the inode of a library that a program has mapped; empty: none.
func mapped(t *testing.T, p *program, library string) string {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) > 5 && strings.Contains(f[5], library) {
			return f[4]
		}
	}
	return ""
}
