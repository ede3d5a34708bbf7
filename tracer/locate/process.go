package locate

import (
	"context"
	"errors"
)

// Options bound what Scan reads. The zero value is right.
type Options struct {
	// Budget is the most bytes of the process's memory to read; 0: 1 GiB.
	Budget uint64
}

// Process is a running process whose functions are looked for. Its methods
// may be used by one goroutine at a time.
type Process struct {
	pid int
}

// Open prepares to look at process pid. Close releases what it holds.
func Open(pid int) (*Process, error) { return &Process{pid: pid}, nil }

// Close releases files.
func (p *Process) Close() error { return nil }

var errUnfinished = errors.New("locate: unfinished")

// Refresh reads the process's mappings again: libraries come and go.
// It reports whether a library with a Role was added.
func (p *Process) Refresh() (added bool, err error) { return false, errUnfinished }

// Scan looks at the files and the memory of the process. It returns early with
// ctx's error; whatever can be found is found even if some of it is missing,
// and the snapshot's Notes say what.
func (p *Process) Scan(ctx context.Context, opt Options) (*Snapshot, error) {
	return nil, errUnfinished
}

// Static finds what the mapped files alone tell: the exported functions and
// the tables of every provider. It does not read the process's memory.
func (p *Process) Static(ctx context.Context) (*Snapshot, error) { return nil, errUnfinished }

// ContextFunctions reads the ibv_context at addr and the functions its ops name.
func (p *Process) ContextFunctions(addr uint64) (DeviceContext, Functions, error) {
	return DeviceContext{}, nil, errUnfinished
}

// QPFunctions reads the ibv_qp at addr, with the functions of its context and,
// if it has them, its builders. libmlx5 replaces wr_complete when the QP
// becomes ready to send: read again after ibv_modify_qp.
func (p *Process) QPFunctions(addr uint64) (QP, Functions, error) {
	return QP{}, nil, errUnfinished
}

// CQFunctions reads the ibv_cq at addr, with the functions of its context and,
// if it has them, start_poll and its like.
func (p *Process) CQFunctions(addr uint64) (CQ, Functions, error) {
	return CQ{}, nil, errUnfinished
}

// MLX5 derives the private layouts again, from the objects given (and those
// of the latest Scan): for CQs and QPs made later.
func (p *Process) MLX5(ctx context.Context, qps, cqs []uint64) ([]MLX5Layout, error) {
	return nil, errUnfinished
}
