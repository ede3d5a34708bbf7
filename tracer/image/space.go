package image

import (
	"cmp"
	"slices"
	"sync"
)

// Region is an executable mapping and the ELF file behind it.
type Region struct {
	Mapping
	File *File // nil: anonymous memory, or a file that is not ELF or could not be opened
}

// FileOffset is the offset in the file of an address inside the region.
func (r *Region) FileOffset(addr uint64) uint64 { return addr - r.Start + r.Mapping.Offset }

// Vaddr is the virtual address, as the file counts them, of an address inside
// the region; ok is false if there is no ELF file or no segment of it.
func (r *Region) Vaddr(addr uint64) (vaddr uint64, ok bool) {
	if r.File == nil {
		return 0, false
	}
	return r.File.Vaddr(r.FileOffset(addr))
}

// Space is the executable part of the address space of one process, and what
// of it was there before. It is safe for concurrent use.
type Space struct {
	PID     uint32
	mu      sync.RWMutex
	regions []Region // by Start, without overlap
}

// NewSpace makes a Space of regions that are known otherwise.
func NewSpace(pid uint32, regions []Region) *Space {
	sp := &Space{PID: pid}
	sp.renew(slices.Clone(regions))
	return sp
}

// Find returns the executable region that contains addr.
func (sp *Space) Find(addr uint64) (Region, bool) {
	sp.mu.RLock()
	defer sp.mu.RUnlock()
	i, found := slices.BinarySearchFunc(sp.regions, addr, func(r Region, a uint64) int {
		return cmp.Compare(r.Start, a)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= sp.regions[i].End {
		return Region{}, false
	}
	return sp.regions[i], true
}

// Regions lists the regions by address.
func (sp *Space) Regions() []Region {
	sp.mu.RLock()
	defer sp.mu.RUnlock()
	return slices.Clone(sp.regions)
}

// renew replaces the regions by now's, keeping older ones where now has
// nothing - unless nothing of a file is where it was: then the process has
// executed another program and the old ones mean nothing any more.
func (sp *Space) renew(now []Region) {
	slices.SortFunc(now, func(a, b Region) int { return cmp.Compare(a.Start, b.Start) })
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !sameProgram(sp.regions, now) {
		sp.regions = now
		return
	}
	all := slices.Clone(now)
	for _, old := range sp.regions {
		if !overlaps(now, old.Start, old.End) {
			all = append(all, old)
		}
	}
	slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.Start, b.Start) })
	sp.regions = all
}

// sameProgram reports whether some file is mapped where it was.
func sameProgram(old, now []Region) bool {
	for _, o := range old {
		if o.Inode == 0 {
			continue
		}
		i, found := slices.BinarySearchFunc(now, o.Start, func(r Region, a uint64) int {
			return cmp.Compare(r.Start, a)
		})
		if found && now[i].Dev == o.Dev && now[i].Inode == o.Inode {
			return true
		}
	}
	return false
}

// overlaps reports whether a region of sorted touches [start, end).
func overlaps(sorted []Region, start, end uint64) bool {
	i, _ := slices.BinarySearchFunc(sorted, start, func(r Region, a uint64) int {
		return cmp.Compare(r.End-1, a) // the first region that ends after start
	})
	return i < len(sorted) && sorted[i].Start < end
}
