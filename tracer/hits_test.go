package tracer

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// TestNumbersOfTheEnded: what has ended leaves its numbers and no probes behind, and
// what was counted by them stays its own.
func TestNumbersOfTheEnded(t *testing.T) {
	testenv.Root(t)
	ended := attacherOfProgram(t, false)
	k := ended.kernel
	lib, offsets := libc(t, ended.pid, "getpid")
	fns := locate.Functions{{Library: lib, Verb: locate.PostSend, Offset: offsets[0]}}
	attach := func(a *attacher) *siteReport {
		t.Helper()
		if n, err := a.attach(fns); n != 2 || err != nil {
			t.Fatalf("%d were attached: %v", n, err)
		}
		return &a.probes[0]
	}
	k.sites.last = sitesMax - 1 - 2 // two are left
	first := attach(ended)
	perCPU := make([]uint64, k.cpus)
	perCPU[0] = 7
	if err := k.coll.Maps[bpf.RdmaMapSiteHits].Put(first.numbers[0], perCPU); err != nil {
		t.Fatal(err)
	}
	if got := k.hits(first); got != 7 {
		t.Fatalf("%d hits", got)
	}
	if err := k.clear(ended.links, ended.leave()); err != nil {
		t.Fatal(err)
	}
	if n := len(ended.links.all); n != 0 {
		t.Errorf("%d links are in still", n)
	}
	if got := k.hits(first); got != 7 {
		t.Errorf("%d hits of what has ended, there were 7", got)
	}
	next := newAttacher(k, ended.links, ended.pid, locate.Host{})
	if r := attach(next); r.numbers[0] == 0 || k.hits(r) != 0 {
		t.Errorf("what came after it has the number %d and %d hits", r.numbers[0], k.hits(r))
	}
	beyond := newAttacher(k, ended.links, ended.pid, locate.Host{})
	if r := attach(beyond); r.numbers[0] != 0 {
		t.Errorf("number %d belongs to another", r.numbers[0])
	}
	if err := k.coll.Maps[bpf.RdmaMapSiteHits].Put(uint32(0), perCPU); err != nil {
		t.Fatal(err)
	}
	if got := k.unnumbered(); got != 7 {
		t.Errorf("%d hits of sites without a number", got)
	}
}
