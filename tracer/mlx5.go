package tracer

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// As in bpf/mlx5.bpf.h.
const (
	layoutsMax  = 8
	layoutShift = 8
)

// layouts tells the programs where a build of libmlx5 keeps the index of a WQE
// and the CQE of a completion. A cookie names the build; what is known of it
// comes as soon as a live object proves it.
type layouts struct {
	mu     sync.Mutex
	builds []locate.Build
	table  [layoutsMax]bpf.RdmaMlx5Layout
}

// cookie is the part of a probe's cookie that names the library's layout, 0
// for libraries without one.
func (l *layouts) cookie(lib *locate.Library) uint64 {
	if lib.Role&locate.RoleMLX5 == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.builds, lib.Build)
	if i < 0 {
		if len(l.builds) == layoutsMax {
			return 0
		}
		i = len(l.builds)
		l.builds = append(l.builds, lib.Build)
	}
	return uint64(i+1) << layoutShift
}

// ready says what of a library can be read: its completion entries, its send queues.
func (l *layouts) ready(lib *locate.Library) (cq, qp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.builds, lib.Build)
	if i < 0 {
		return false, false
	}
	return l.table[i].CqReady != 0, l.table[i].QpReady != 0
}

// set takes what was proven of a library.
func (k *kernel) setLayout(m locate.MLX5Layout) error {
	l := &k.layouts
	c := l.cookie(m.Library)
	if c == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.table[c>>layoutShift-1]
	if m.CQ.Verified {
		e.CqActiveBuf, e.CqConsIndex, e.CqCqeSize = m.CQ.ActiveBuf, m.CQ.ConsIndex, m.CQ.CQESize
		e.CqReady = 1
	}
	if m.QP.Verified {
		e.QpCurPost, e.QpSqStart = m.QP.SQCurPost, m.QP.SQStart
		e.QpSqBlocks, e.QpWrid = m.QP.SQWQECnt, m.QP.SQWRID
		e.QpReady = 1
	}
	if err := k.coll.Variables[bpf.RdmaVarMlx5Layouts].Set(l.table); err != nil {
		return fmt.Errorf("tell the programs the layout of %s: %w", m.Library.Path, err)
	}
	return nil
}

// complete says that nothing is left to learn.
func complete(all []locate.MLX5Layout) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(m locate.MLX5Layout) bool {
		return !m.CQ.Verified || !m.QP.Verified
	})
}

// Queues that were never used prove nothing: they are looked at again.
const (
	layoutRetry    = 50 * time.Millisecond
	layoutRetryMax = 2 * time.Second
	layoutObjects  = 32
)

// learnLayouts hands on what the first look proved.
func (tg *target) learnLayouts(k *kernel, all []locate.MLX5Layout) error {
	for _, m := range all {
		if err := k.setLayout(m); err != nil {
			return err
		}
	}
	tg.layoutsKnown = complete(all)
	return nil
}

// addObject remembers an object that may prove a layout.
func (tg *target) addObject(c change) {
	list := &tg.newQPs
	if c.what == newCQ {
		list = &tg.newCQs
	}
	if len(*list) < layoutObjects && !slices.Contains(*list, c.addr) {
		*list = append(*list, c.addr)
	}
}

// tryLayouts looks at the process's objects again, and comes back later if
// they still prove too little.
func (f *follower) tryLayouts(tg *target, c change) error {
	if tg.layoutsKnown {
		return nil
	}
	all, err := tg.finder.MLX5(f.ctx, tg.newQPs, tg.newCQs)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return nil // no queue of libmlx5 yet: the next one asks again
	}
	if err := tg.learnLayouts(f.kernel, all); err != nil {
		return err
	}
	if !tg.layoutsKnown {
		f.retryLayouts(tg, min(2*c.delay, layoutRetryMax))
	}
	return nil
}

func (f *follower) retryLayouts(tg *target, delay time.Duration) {
	c := change{what: newLayout, pid: uint32(tg.pid), delay: delay}
	time.AfterFunc(delay, func() { f.add(c) })
}
