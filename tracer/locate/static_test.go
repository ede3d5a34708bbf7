package locate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// installed finds the distribution's libibverbs and its providers.
func installed(t testing.TB) (verbs string, providers []string) {
	t.Helper()
	v, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1")
	v = append(v, globAll("/usr/lib64/libibverbs.so.1")...)
	p := append(globAll("/usr/lib/*/libibverbs/*.so"), globAll("/usr/lib64/libibverbs/*.so")...)
	if len(v) == 0 || len(p) == 0 {
		testenv.Missing(t, "needs libibverbs and its providers (Debian: ibverbs-providers)")
	}
	return v[0], p
}

func globAll(pattern string) []string {
	m, _ := filepath.Glob(pattern)
	return m
}

// debian44 are addresses in the files of Debian's ibverbs-providers 44.0-2 on
// amd64, by build-id; they were found by hand, by running programs under perf
// probes.
var debian44 = map[string][]string{
	"800c6ca768baceb592682738a03643f11379cbdd": { // libmlx5.so.1.24.44.0
		"post_send 0x552e0", "post_recv 0x55d50", "post_srq_recv 0x57150", "poll_cq 0x1da50", "poll_cq 0x1e880",
		"req_notify_cq 0x1f970", "wr_start 0x4c1f0", "wr_complete 0x4c7b0", "wr_complete 0x4bf20", "wr_abort 0x4bf80",
		"wr_rdma_write 0x4d770", "wr_rdma_write_imm 0x4da00", "wr_rdma_read 0x4dca0", "wr_send 0x4d280",
		"wr_send_imm 0x4d4f0", "wr_atomic_cmp_swp 0x4df30", "wr_atomic_fetch_add 0x4e230", "wr_set_sge 0x4c6c0",
		"wr_set_sge_list 0x51a30", "wr_set_inline_data 0x51de0",
	},
	"c3feca97151b106036f064a5d7f33086033ca9eb": { // librxe-rdmav34.so
		"poll_cq 0x2ca0", "post_recv 0x4550", "post_send 0x3cc0", "post_srq_recv 0x44e0",
		"req_notify_cq ibv_cmd_req_notify_cq",
	},
}

// tellBoth is what a file tells, in words.
func tellBoth(t *testing.T, o *object.File, slots slotMap) []string {
	t.Helper()
	tables, err := opsTables(o, slots)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, table := range tables {
		for v, at := range table.funcs {
			if at.symbol != "" {
				out = append(out, fmt.Sprintf("%v %s", v, at.symbol))
			} else {
				out = append(out, fmt.Sprintf("%v %#x", v, at.vaddr))
			}
		}
	}
	built, err := builders(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range built {
		out = append(out, fmt.Sprintf("%v %#x", b.verb, b.vaddr))
	}
	return out
}

// TestInstalledProviders: the files of every installed provider tell where its
// post_send, post_recv and poll_cq are.
func TestInstalledProviders(t *testing.T) {
	verbs, providers := installed(t)
	slots, err := learnSlots(openObject(t, verbs))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: slots %v, table of %d bytes, like rdma-core %q", verbs, slots.at, slots.size, slots.release())
	for _, path := range providers {
		t.Run(filepath.Base(path), func(t *testing.T) {
			o := openObject(t, path)
			told := tellBoth(t, o, slots)
			t.Logf("%d functions: %v", len(told), told)
			for _, v := range []Verb{PostSend, PostRecv, PollCQ} {
				if !slices.ContainsFunc(told, func(s string) bool { return s[:len(v.String())+1] == v.String()+" " }) {
					t.Errorf("no %v", v)
				}
			}
			for _, want := range debian44[o.BuildID] {
				if !slices.Contains(told, want) {
					t.Errorf("lacks %q", want)
				}
			}
		})
	}
}

// TestStaticFunctionsBegin: whatever is reported of the installed providers is
// the beginning of a function, with its size.
func TestStaticFunctionsBegin(t *testing.T) {
	verbs, providers := installed(t)
	v := &library{file: openObject(t, verbs), Library: Library{Path: verbs, Role: RoleVerbs}}
	p := &Process{libs: []*library{v}}
	for _, path := range providers {
		p.libs = append(p.libs, &library{file: openObject(t, path), Library: Library{Path: path, Role: RoleProvider}})
	}
	c := &collector{}
	for _, l := range p.libs {
		p.static(l, true, c)
	}
	if len(c.notes) != 0 {
		t.Errorf("notes: %q", c.notes)
	}
	fns := c.sorted()
	for _, f := range fns {
		l := p.libs[slices.IndexFunc(p.libs, func(l *library) bool { return &l.Library == f.Library })]
		off, err := l.file.CodeOffset(f.Vaddr)
		frame, ok := l.file.FrameAt(f.Vaddr)
		if err != nil || off != f.Offset || !ok || frame.Begin != f.Vaddr || frame.End-frame.Begin != f.Size {
			t.Errorf("%v of %s at %#x, %d bytes: offset %#x, %v, frame %#x", f.Verb, f.Library.Path, f.Vaddr, f.Size, off, err, frame)
		}
	}
	for _, want := range []Verb{OpenDevice, CmdCreateQPEx, InitCQ, ModifyQP, DestroyQP, GetCQEvent, DestroyCQ, QPToQPEx, MLX5InitObj} {
		if n := len(fns.Of(want)); n != 1 && want != MLX5InitObj {
			t.Errorf("%v was found %d times", want, n)
		}
	}
}

// TestNoFunctions: files that cannot tell say why, and nothing else.
func TestNoFunctions(t *testing.T) {
	verbs, _ := installed(t)
	v := openObject(t, verbs)
	slots, err := learnSlots(v)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := learnSlots(openObject(t, exe)); err == nil {
		t.Error("slots were learned from a file without verbs_set_ops")
	}
	if tables, err := opsTables(openObject(t, exe), slots); err == nil {
		t.Errorf("tables in a file without calls of verbs_set_ops: %v", tables)
	}
}
