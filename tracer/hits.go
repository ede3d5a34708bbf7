package tracer

import (
	"sync"

	"github.com/rdmatrace/rdmatrace/bpf"
)

// As in bpf/wait.bpf.h.
const (
	siteShift = 32
	sitesMax  = 4096
)

// siteNumbers gives each attached site a number, by which its program counts
// its hits. Number 0 is for those beyond the last, together.
type siteNumbers struct {
	mu   sync.Mutex
	last uint32
}

// number numbers the sites and puts the numbers into their cookies.
func (n *siteNumbers) number(batches []*batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range batches {
		for i := range b.sites {
			if n.last == sitesMax-1 {
				return
			}
			n.last++
			b.sites[i].number = n.last
			b.sites[i].cookie |= uint64(n.last) << siteShift
		}
	}
}

// hits sums the hits of a site's attachments. After Close it is 0.
func (k *kernel) hits(numbers []uint32) uint64 {
	if k.coll == nil {
		return 0
	}
	var sum uint64
	perCPU := make([]uint64, k.cpus)
	for _, n := range numbers {
		if n == 0 {
			continue
		}
		if err := k.coll.Maps[bpf.RdmaMapSiteHits].Lookup(n, &perCPU); err != nil {
			continue
		}
		for _, v := range perCPU {
			sum += v
		}
	}
	return sum
}

// misses is how often the kernel did not run a program because it, or another
// where older kernels allow only one, was running on that CPU.
func (k *kernel) misses(program string) uint64 {
	if k.coll == nil || k.prog(program) == nil {
		return 0
	}
	stats, err := k.prog(program).Stats()
	if err != nil {
		return 0
	}
	return stats.RecursionMisses
}
