//go:build amd64

package bpf

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
)

// begins and ends are a builder's wr_start and wr_complete, as posts has its arguments.
//
//go:noinline
func begins(_, _, fourth, qp, list uintptr) uintptr { return fourth + qp + list }

//go:noinline
func ends(_, _, fourth, qp, list uintptr) uintptr { return fourth | qp | list }

// runs has a program run often, each time for n work requests, and reports what the
// kernel measures that a run takes: the least of the means of some, and the median.
func (p *poster) runs(b *testing.B, program string, n int, once func()) {
	each := min(100, 1600/n) // of which a ring has room for all
	prog := p.coll.Programs[program]
	var means []float64
	for b.Loop() {
		asked, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		if err != nil {
			b.Fatal(err)
		}
		was, err := prog.Stats()
		if err != nil {
			b.Fatal(err)
		}
		for range each {
			once()
		}
		is, err := prog.Stats()
		if err != nil {
			b.Fatal(err)
		}
		asked.Close()
		if ran := is.RunCount - was.RunCount; ran != uint64(each) {
			b.Fatalf("%d runs of %d", ran, each)
		}
		means = append(means, float64(is.Runtime-was.Runtime)/float64(each))
		p.records(0) // the rings do not fill up
	}
	slices.Sort(means)
	b.ReportMetric(means[0], "least-ns/run")
	b.ReportMetric(means[len(means)/2], "median-ns/run")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPost: what the programs take of a post, by the number of its work requests.
func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 2, 8, 64} {
		b.Run(fmt.Sprintf("list-%d", n), func(b *testing.B) {
			p := newPoster(b, RdmaProgPostSendEnter)
			defer p.attachTo(RdmaProgPostSendEnter, posts, 0)()
			p.list(n, false)
			p.runs(b, RdmaProgPostSendEnter, n, func() { p.post(address64(&p.sends[0])) })
		})
	}
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("bracket-%d", n), func(b *testing.B) {
			p := newPoster(b, RdmaProgBuildStart, RdmaProgBuildWr, RdmaProgBuildCompleteEnter)
			defer p.attachTo(RdmaProgBuildStart, begins, 0)()
			defer p.attachTo(RdmaProgBuildWr, posts, 2)()
			defer p.attachTo(RdmaProgBuildCompleteEnter, ends, 0)()
			qp := uintptr(address64(p.qp))
			p.runs(b, RdmaProgBuildCompleteEnter, n, func() {
				p.taken = begins(0, 0, 0, qp, 0)
				for range n {
					p.post(0)
				}
				p.taken = ends(0, 0, 0, qp, 0)
			})
		})
	}
}
