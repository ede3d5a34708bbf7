package locate

import (
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// builds are the ways in which the fixtures are compiled: what compilers and
// distributions do differently. Each must give the same result.
var builds = []struct {
	name string
	arm  bool
	cc   []string
}{
	{name: "gcc -O0", cc: []string{"gcc", "-O0"}},
	{name: "gcc -O1", cc: []string{"gcc", "-O1"}},
	{name: "gcc -O2", cc: []string{"gcc", "-O2"}},
	{name: "gcc -Os", cc: []string{"gcc", "-Os"}},
	{name: "gcc -O3, AVX2", cc: []string{"gcc", "-O3", "-march=x86-64-v3"}},
	{name: "gcc -O3, AVX512", cc: []string{"gcc", "-O3", "-march=x86-64-v4"}},
	{name: "gcc, CET", cc: []string{"gcc", "-O2", "-fcf-protection=full", "-Wl,-z,ibtplt"}},
	{name: "gcc, no PLT", cc: []string{"gcc", "-O2", "-fno-plt"}},
	{name: "gcc, packed relocations", cc: []string{"gcc", "-O2", "-Wl,-z,pack-relative-relocs"}},
	{name: "gcc, bound now, other addresses", cc: []string{"gcc", "-O2", "-Wl,-z,now", "-Wl,-z,noseparate-code"}},
	{name: "clang -O0", cc: []string{"clang", "-O0"}},
	{name: "clang -O1", cc: []string{"clang", "-O1"}},
	{name: "clang -O2", cc: []string{"clang", "-O2"}},
	{name: "clang -O3, AVX2", cc: []string{"clang", "-O3", "-march=x86-64-v3"}},
	{name: "clang, CET", cc: []string{"clang", "-O2", "-fcf-protection=full"}},
	{name: "arm64 -O0", arm: true, cc: []string{"clang", "-O0"}},
	{name: "arm64 -O1", arm: true, cc: []string{"clang", "-O1"}},
	{name: "arm64 -O2", arm: true, cc: []string{"clang", "-O2"}},
	{name: "arm64 -Os", arm: true, cc: []string{"clang", "-Os"}},
	{name: "arm64, BTI and PAC", arm: true, cc: []string{"clang", "-O2", "-mbranch-protection=standard"}},
	{name: "arm64, packed relocations", arm: true, cc: []string{"clang", "-O2", "-Wl,--pack-dyn-relocs=relr"}},
}

// tool skips a test for want of a compiler or linker, on CI fails it.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		testenv.Missing(t, "needs %s", name)
	}
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// compileFixtures makes the library and the provider, and returns them with the
// provider's symbols by address, which the code under test does not use.
func compileFixtures(t *testing.T, arm bool, cc []string) (verbs, provider *object.File, names map[uint64]string) {
	t.Helper()
	tool(t, cc[0])
	args := append(slices.Clone(cc[1:]), "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,--build-id", "-Itestdata")
	if arm {
		tool(t, "ld.lld")
		args = append(args, "--target=aarch64-linux-gnu", "-ffreestanding", "-fasynchronous-unwind-tables", "-nostdlib", "-fuse-ld=lld")
	} else if runtime.GOARCH != "amd64" {
		t.Skip("the compilers here make code for another machine")
	}
	dir := t.TempDir()
	v, p := filepath.Join(dir, "libverbs.so"), filepath.Join(dir, "libprovider.so")
	run(t, exec.Command(cc[0], append(args, "-Wl,--version-script=testdata/verbs.map", "-o", v, "testdata/verbs.c")...))
	run(t, exec.Command(cc[0], append(args, "-o", p, "testdata/provider.c", v)...))
	return openObject(t, v), openObject(t, p), symbolNames(t, p)
}

func openObject(t testing.TB, path string) *object.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	o, err := object.New(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return o
}

// symbolNames are the functions of a file that is not stripped, by address.
func symbolNames(t *testing.T, path string) map[uint64]string {
	t.Helper()
	e, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	syms, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint64]string{}
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value != 0 {
			names[s.Value] = s.Name
		}
	}
	return names
}

// wantTables are the fixture provider's tables: its common one, that of the
// completion format's version, and the one behind a pointer.
var wantTables = []map[Verb]string{
	{PostSend: "my_post_send", PostRecv: "my_post_recv", PostSRQRecv: "my_post_srq_recv", PollCQ: "my_poll_cq",
		ReqNotifyCQ: "ibv_cmd_req_notify_cq"},
	{PollCQ: "my_poll_cq_v1"},
	{PostSend: "gen2_post_send", PostRecv: "gen2_post_recv", PollCQ: "gen2_poll_cq"},
}

var wantBuilders = []string{
	"wr_abort my_abort", "wr_complete my_complete", "wr_complete my_complete_error", "wr_rdma_read rc_read",
	"wr_rdma_write rc_write", "wr_send rc_send", "wr_send ud_send", "wr_set_inline_data set_inline",
	"wr_set_sge rc_set_sge", "wr_set_sge ud_set_sge", "wr_set_sge xrc_set_sge", "wr_set_ud_addr set_ud_addr",
	"wr_set_xrc_srqn set_xrc_srqn", "wr_start my_start",
}

func TestFixtures(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			verbs, provider, names := compileFixtures(t, b.arm, b.cc)
			slots, err := learnSlots(verbs)
			if err != nil {
				t.Fatal(err)
			}
			want := map[Verb]int64{PollCQ: 80, PostRecv: 88, PostSend: 96, PostSRQRecv: 112, ReqNotifyCQ: 128}
			if diff := cmp.Diff(want, slots.at); diff != "" || slots.size != 144 || slots.inside != 48 || slots.release() != "" {
				t.Errorf("slots: size %d, inside %d, release %q; %s", slots.size, slots.inside, slots.release(), diff)
			}
			tables, err := opsTables(provider, slots)
			if err != nil {
				t.Fatal(err)
			}
			var got []map[Verb]string
			for _, table := range tables {
				funcs := map[Verb]string{}
				for v, at := range table.funcs {
					funcs[v] = at.symbol + names[at.vaddr]
				}
				got = append(got, funcs)
			}
			byName := func(a, b map[Verb]string) int { return strings.Compare(b[PollCQ], a[PollCQ]) }
			wanted := slices.SortedFunc(slices.Values(wantTables), byName)
			if diff := cmp.Diff(wanted, slices.SortedFunc(slices.Values(got), byName)); diff != "" {
				t.Errorf("tables: %s", diff)
			}
			built, err := builders(provider)
			if err != nil {
				t.Fatal(err)
			}
			set := map[string]bool{}
			for _, b := range built {
				set[b.verb.String()+" "+names[b.vaddr]] = true
			}
			if diff := cmp.Diff(wantBuilders, slices.Sorted(maps.Keys(set))); diff != "" {
				t.Errorf("builders: %s", diff)
			}
		})
	}
}
