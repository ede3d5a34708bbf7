package tracer

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"
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
	mu    sync.Mutex
	last  uint32
	spare []uint32 // of sites that are no more
}

// next is a number that no site has; 0: there is none left. n.mu is held.
func (n *siteNumbers) next() uint32 {
	if last := len(n.spare) - 1; last >= 0 {
		one := n.spare[last]
		n.spare = n.spare[:last]
		return one
	}
	if n.last == sitesMax-1 {
		return 0
	}
	n.last++
	return n.last
}

// number numbers the sites and puts the numbers into their cookies.
func (n *siteNumbers) number(batches []*batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range batches {
		for i := range b.sites {
			one := n.next()
			b.sites[i].number = one
			b.sites[i].cookie |= uint64(one) << siteShift
		}
	}
}

// hits sums the hits of a site's attachments. After Close it is what was counted
// when its process ended.
func (k *kernel) hits(r *siteReport) uint64 {
	sum := r.hits
	for _, n := range r.numbers {
		if n != 0 {
			sum += k.counted(n)
		}
	}
	return sum
}

// unnumbered are the hits of all sites without a number.
func (k *kernel) unnumbered() uint64 { return k.counted(0) }

// counted is what was counted by a number.
func (k *kernel) counted(number uint32) (sum uint64) {
	if k.coll == nil {
		return 0
	}
	perCPU := make([]uint64, k.cpus)
	if err := k.coll.Maps[bpf.RdmaMapSiteHits].Lookup(number, &perCPU); err != nil {
		return 0
	}
	for _, v := range perCPU {
		sum += v
	}
	return sum
}

// leftover is what is left to be cleared of a process that has ended.
type leftover struct {
	links   []link.Link
	numbers []uint32
}

// leave gives up the probes of a process that has ended: what they counted is final.
func (a *attacher) leave() (left leftover) {
	for _, b := range a.batches {
		left.links = append(left.links, b.links...)
		b.links = nil
	}
	for i := range a.probes {
		r := &a.probes[i]
		r.hits = a.kernel.hits(r)
		left.numbers = append(left.numbers, slices.DeleteFunc(r.numbers, func(n uint32) bool { return n == 0 })...)
		r.numbers = nil
	}
	return left
}

// clear takes probes out, and gives the numbers of their sites to others: a job may
// start programs without end. It takes long.
func (k *kernel) clear(l *links, left leftover) error {
	errs := []error{l.drop(left.links...)}
	none := make([]uint64, k.cpus)
	var free []uint32
	for _, n := range left.numbers {
		if err := k.coll.Maps[bpf.RdmaMapSiteHits].Put(n, none); err != nil {
			errs = append(errs, fmt.Errorf("clear the hits of site %d: %w", n, err))
			continue
		}
		free = append(free, n)
	}
	k.sites.mu.Lock()
	k.sites.spare = append(k.sites.spare, free...)
	k.sites.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take out the probes of processes that have ended: %w", err)
	}
	return nil
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
