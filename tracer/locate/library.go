package locate

import (
	"strings"

	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// library is a Library with its contents.
type library struct {
	Library
	file     *object.File
	slots    *slotMap        // of a libibverbs; nil: not learned
	why      error           // why not
	dummies  map[uint64]bool // of a libibverbs: its functions that only say "not supported"
	looked   bool            // provider is set, or failed says why not
	provider []opsTable
	failed   error
	followed bool // builders is set
	builders []builder
}

// library returns what a region's file is to RDMA, nil if nothing.
func (p *Process) library(r *image.Region) *library {
	l, ok := p.known[r.File]
	if !ok {
		l = classify(r)
		p.known[r.File] = l
	}
	return l
}

// classify decides a file's role by what it imports and exports. The versions
// of symbols tell, cheaply, whether a file can have one: RDMA libraries need or
// define versions of libibverbs or libmlx5.
func classify(r *image.Region) *library {
	l := newLibrary(r, 0)
	if l == nil {
		return nil
	}
	needs, defines := l.file.Versions()
	if anyPrefix(needs, "IBVERBS_", "MLX5_") || anyPrefix(defines, "IBVERBS_", "MLX5_") {
		l.Role = roleOf(l.file)
	}
	if l.Role == 0 {
		return nil
	}
	l.Build = newBuild(l.FileID, r.File)
	return l
}

// newLibrary reads the headers of a region's file; nil if it is none.
func newLibrary(r *image.Region, role Role) *library {
	f, err := object.New(r.File)
	if err != nil {
		return nil
	}
	return &library{file: f, Library: Library{
		FileID: FileID{Dev: r.Dev, Ino: r.Inode, BuildID: r.File.BuildID},
		Path:   r.Path, Deleted: r.Deleted, Role: role,
	}}
}

func anyPrefix(names []string, prefixes ...string) bool {
	for _, n := range names {
		for _, p := range prefixes {
			if strings.HasPrefix(n, p) {
				return true
			}
		}
	}
	return false
}

// roleSigns are the symbols by which a role is known.
var roleSigns = []struct {
	role     Role
	imported bool
	prefix   string
}{
	{RoleVerbs, false, "verbs_set_ops"},
	{RoleProvider, true, "verbs_set_ops"},
	{RoleProvider, true, "verbs_register_driver"},
	{RoleMLX5, false, "mlx5dv_init_obj"},
	{RoleDirect, true, "mlx5dv_init_obj"},
	{RoleDirect, true, "mlx5dv_devx_alloc_uar"},
	{RoleDirect, true, "mlx5dv_devx_umem_reg"},
	{RoleDirect, true, "mlx4dv_init_obj"},
	{RoleDirect, true, "manadv_init_obj"},
	{RoleDirect, true, "efadv_query_qp_wqs"},
	{RoleUCX, false, "uct_rc_"},
	{RoleUCX, false, "uct_ib_"},
}

func roleOf(f *object.File) Role {
	var role Role
	for _, s := range roleSigns {
		if s.imported && f.Imports(s.prefix) || !s.imported && f.Exports(s.prefix) {
			role |= s.role
		}
	}
	return role
}

// exported are the functions that libibverbs and libmlx5 export, by the role
// of the library that does.
var exported = []struct {
	role  Role
	verbs []Verb
}{
	{RoleVerbs, []Verb{OpenDevice, ImportDevice, CloseDevice, SetOps, CmdCreateQP, CmdCreateQPEx, CmdCreateQPEx2,
		CmdOpenQP, CreateQP, ModifyQP, DestroyQP, QPToQPEx, InitCQ, CmdCreateCQ, CmdCreateCQEx, DestroyCQ,
		GetCQEvent, AckCQEvents, CreateSRQ, DestroySRQ, CreateCompChannel, GetAsyncEvent}},
	{RoleMLX5, []Verb{MLX5InitObj, MLX5CreateQP, MLX5CreateCQ, MLX5DevxObj, MLX5DevxUAR}},
}

// exports adds the functions that a library exports.
func (l *library) exports(c *collector) {
	for _, e := range exported {
		if l.Role&e.role == 0 {
			continue
		}
		for _, v := range e.verbs {
			s, err := l.file.Export(v.String())
			if err != nil {
				continue // each release exports its own: their absence means nothing
			}
			how := "exported"
			if s.Version != "" {
				how += " " + s.Version
			}
			c.add(l, v, s.Vaddr, s.Size, how, false)
		}
	}
}
