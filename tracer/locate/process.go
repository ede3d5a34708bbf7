package locate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// Process is a running process whose functions are looked for. Its methods
// may be used by one goroutine at a time.
type Process struct {
	pid     int
	store   *image.Store
	own     bool // the store is this Process's own
	maps    []image.Mapping
	regions []image.Region
	known   map[*image.File]*library // nil: of no role
	plain   map[*image.File]*library // of no role, but a pointer led there
	libs    []*library               // those with a role that are mapped now, by first address
	mem     *memory
	layouts map[*library]*MLX5Layout
	seen    objects // of the latest Scan
}

// Open prepares to look at process pid. Close releases what it holds.
func Open(pid int) (*Process, error) {
	p, err := OpenIn(image.NewStore(), pid)
	if err != nil {
		return nil, err
	}
	p.own = true
	return p, nil
}

// OpenIn is Open with a store of files that others use too, so that each file
// is opened once. The store must outlive the Process.
func OpenIn(store *image.Store, pid int) (*Process, error) {
	mem, err := openMemory(pid)
	if err != nil {
		return nil, err
	}
	p := &Process{pid: pid, store: store, mem: mem,
		known: map[*image.File]*library{}, plain: map[*image.File]*library{},
		layouts: map[*library]*MLX5Layout{}}
	if _, err := p.Refresh(); err != nil {
		mem.close()
		return nil, err
	}
	return p, nil
}

// Close releases files.
func (p *Process) Close() error {
	err := p.mem.close()
	if p.own {
		err = cmp.Or(err, p.store.Close())
	}
	return err
}

// Refresh reads the process's mappings again: libraries come and go.
// It reports whether a library with a Role was added.
func (p *Process) Refresh() (added bool, err error) {
	maps, err := image.ReadMaps(uint32(p.pid))
	if err == nil && len(maps) == 0 {
		err = errGone
	}
	if err != nil {
		return false, p.wrap("read the memory map", err)
	}
	space, err := p.store.Snapshot(uint32(p.pid))
	if err != nil {
		return false, p.wrap("read the memory map", err)
	}
	p.maps, p.regions = maps, space.Regions()
	p.mem.maps = maps
	before := p.libs
	p.libs = nil
	for i := range p.regions {
		r := &p.regions[i]
		if r.File == nil || !p.mapped(r) {
			continue
		}
		l := p.library(r)
		if l == nil || slices.Contains(p.libs, l) {
			continue
		}
		l.Open, l.InRoot = p.openPath(r), fmt.Sprintf("/proc/%d/root%s", p.pid, r.Path)
		l.Deleted = r.Deleted
		p.libs = append(p.libs, l)
		added = added || !slices.Contains(before, l)
	}
	return added, nil
}

// mapped says whether a region that the store remembers is still there.
func (p *Process) mapped(r *image.Region) bool {
	m := p.mem.mapping(r.Start)
	return m != nil && m.Start == r.Start && m.Inode == r.Inode && m.Dev == r.Dev
}

// openPath is a path at which others can open the file of a region.
func (p *Process) openPath(r *image.Region) string {
	link := fmt.Sprintf("/proc/%d/map_files/%x-%x", p.pid, r.Start, r.End)
	if _, err := os.Stat(link); err == nil {
		return link
	}
	return fmt.Sprintf("/proc/%d/root%s", p.pid, r.Path)
}

// place is where in a file an address of the process lies.
type place struct {
	region *image.Region
	lib    *library // nil: a file without a role
	offset uint64   // in the file
	vaddr  uint64   // in the file's own addresses
}

// code finds the executable file contents at addr.
func (p *Process) code(addr uint64) (place, bool) {
	i, found := slices.BinarySearchFunc(p.regions, addr, func(r image.Region, a uint64) int {
		return cmp.Compare(r.Start, a)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= p.regions[i].End || p.regions[i].Inode == 0 {
		return place{}, false
	}
	r := &p.regions[i]
	at := place{region: r, offset: r.FileOffset(addr)}
	vaddr, ok := r.Vaddr(addr)
	at.vaddr = vaddr
	at.lib = p.known[r.File]
	return at, ok
}

// layout is that of the public structures on this machine's architecture; a
// process of another cannot run here.
func (p *Process) layout() *layout { return &hostLayout }

var hostLayout = layoutOf(map[string]object.Arch{"amd64": object.ArchAMD64, "arm64": object.ArchARM64}[runtime.GOARCH])

// wrap says what was attempted on which process.
func (p *Process) wrap(what string, err error) error {
	return fmt.Errorf("%s of process %d: %w", what, p.pid, err)
}

// Static finds what the mapped files alone tell: the exported functions and
// the tables of every provider. It does not read the process's memory.
func (p *Process) Static(ctx context.Context) (*Snapshot, error) {
	c := &collector{}
	for _, l := range p.libs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.static(l, true, c)
	}
	return p.snapshot(c), nil
}

// snapshot is what was collected so far.
func (p *Process) snapshot(c *collector) *Snapshot {
	s := &Snapshot{Functions: c.sorted(), Notes: c.notes}
	for _, l := range p.libs {
		s.Libraries = append(s.Libraries, &l.Library)
	}
	for _, f := range s.Functions {
		if f.Library.Role == 0 && !slices.Contains(s.Libraries, f.Library) {
			s.Libraries = append(s.Libraries, f.Library)
		}
	}
	return s
}

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }
