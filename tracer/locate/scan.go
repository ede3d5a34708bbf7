package locate

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Options bound what Scan reads. The zero value is right.
type Options struct {
	// Budget is the most bytes of the process's memory to look through, once
	// for contexts and once for their queues; 0: 1 GiB, which takes 0.3 s.
	Budget uint64
}

const defaultBudget = 1 << 30

// Scan looks at the files and the memory of the process. It returns early with
// ctx's error; whatever can be found is found even if some of it is missing,
// and the snapshot's Notes say what.
func (p *Process) Scan(ctx context.Context, opt Options) (*Snapshot, error) {
	type result struct {
		s   *Snapshot
		err error
	}
	// To read another process's memory can wait for ever in the kernel, if it
	// is a userfaultfd's after all. Then the goroutine stays, we don't.
	done := make(chan result, 1)
	go func() {
		s, err := p.scan(ctx, opt)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		return nil, p.wrap("look at the memory", ctx.Err())
	}
}

func (p *Process) scan(ctx context.Context, opt Options) (*Snapshot, error) {
	begin, read := time.Now(), p.mem.read
	if opt.Budget == 0 {
		opt.Budget = defaultBudget
	}
	c := &collector{}
	p.mem.avoid = p.userfaults(c)
	first, second := newSweep(p.mem, opt.Budget), newSweep(p.mem, opt.Budget)
	contexts, err := p.contexts(ctx, first)
	if errors.Is(err, unix.EPERM) {
		c.note("what process %d has already is not known, only what its files tell: %v (kernel.yama.ptrace_scope=3, a security module or a seccomp filter of rdmatrace's container forbids it)", p.pid, err)
		err = nil
	}
	if err != nil {
		return nil, p.wrap("look for ibv_contexts in the memory", err)
	}
	for _, l := range p.libs {
		used := slices.ContainsFunc(contexts, func(f found) bool { return f.Provider == &l.Library })
		p.static(l, used, c)
	}
	p.seen, err = p.members(ctx, second, contexts)
	if err != nil {
		return nil, p.wrap("look for queue pairs in the memory", err)
	}
	if err := p.dropDestroyed(&p.seen); err != nil {
		return nil, p.wrap("look at the tables of libmlx5", err)
	}
	p.live(c)
	mlx5, err := p.mlx5(ctx)
	if err != nil {
		return nil, p.wrap("look at the queues of libmlx5", err)
	}
	left := max(first.left, second.left)
	if left > 0 {
		c.note("%d MiB of the process's memory were not looked through (budget %d MiB): queues there are found when they are used",
			left>>20, opt.Budget>>20)
	}
	if !p.hasVerbs() && len(contexts) > 0 {
		c.note("libibverbs is linked into the program: objects that it makes from now on are not seen being made")
	}
	out := p.snapshot(c)
	for _, f := range p.seen.contexts {
		out.Contexts = append(out.Contexts, f.DeviceContext)
	}
	out.QPs, out.CQs, out.MLX5 = p.seen.qps, p.seen.cqs, mlx5
	out.Stats = ScanStats{BytesRead: p.mem.read - read, BytesLeft: left, Destroyed: p.seen.destroyed, Took: time.Since(begin)}
	return out, nil
}

func (p *Process) hasVerbs() bool {
	return slices.ContainsFunc(p.libs, func(l *library) bool { return l.Role&RoleVerbs != 0 })
}

// live adds the functions that live objects point to, and says where they
// contradict the files.
func (p *Process) live(c *collector) {
	for _, f := range p.seen.contexts {
		p.contextFunctions(f, c)
		p.crossCheck(f, c)
	}
	for _, q := range p.seen.qps {
		if q.Ex {
			_ = p.memberFunctions(q.Addr, p.layout().qpEx, p.layout().qpExEnd, "live QP", c)
		}
	}
	for _, q := range p.seen.cqs {
		if q.Ex {
			_ = p.memberFunctions(q.Addr, p.layout().cqEx, p.layout().cqExEnd, "live CQ", c)
		}
	}
}

// crossCheck compares a live context with what the file of its provider told.
func (p *Process) crossCheck(f found, c *collector) {
	at, ok := p.code(f.ops[PostSend])
	if !ok || at.lib == nil || at.lib.failed != nil || len(at.lib.provider) == 0 {
		return
	}
	for v := range contextOps {
		var static, both bool
		for _, fn := range c.functions {
			if fn.Library == &at.lib.Library && fn.Verb == v && fn.Source != "live context" {
				static = true
				both = both || fn.Live
			}
		}
		live, ok := p.code(f.ops[v])
		if static && !both && ok && live.lib == at.lib {
			c.note("%s: the live context of %s names another %v than the file's tables", at.lib.Path, f.Device, v)
		}
	}
	if verbs := p.verbsOf(at.lib); verbs != nil && verbs.slots != nil && verbs.why == nil &&
		uint64(verbs.slots.inside) != f.inside {
		c.note("%s: its ibv_context is %d bytes into its verbs_context, by verbs_set_ops %d",
			f.Device, f.inside, verbs.slots.inside)
	}
}

// ContextFunctions reads the ibv_context at addr and the functions its ops name,
// with those that its provider's code puts into queue pairs.
func (p *Process) ContextFunctions(addr uint64) (DeviceContext, Functions, error) {
	var f found
	fns, err := p.late("ibv_context", func(c *collector) (err error) {
		f, err = p.context(addr)
		if err != nil {
			return err
		}
		p.contextFunctions(f, c)
		if at, ok := p.code(f.ops[PostSend]); ok && at.lib != nil && at.lib.Role&RoleProvider != 0 {
			at.lib.addBuilders(c)
		}
		return nil
	})
	return f.DeviceContext, fns, err
}

// QPFunctions reads the ibv_qp at addr, with the functions of its context and,
// if it has them, its builders. libmlx5 replaces wr_complete when the QP
// becomes ready to send: read again after ibv_modify_qp.
func (p *Process) QPFunctions(addr uint64) (QP, Functions, error) {
	var q QP
	fns, err := p.late("ibv_qp", func(c *collector) (err error) {
		if q, err = p.qp(addr, nil); err != nil {
			return err
		}
		f, err := p.context(q.Context)
		if err != nil {
			return err
		}
		p.contextFunctions(f, c)
		p.fromLayout(&q)
		if q.Ex {
			return p.memberFunctions(addr, p.layout().qpEx, p.layout().qpExEnd, "live QP", c)
		}
		return nil
	})
	return q, fns, err
}

// CQFunctions reads the ibv_cq at addr, with the functions of its context and,
// if it has them, start_poll and its like.
func (p *Process) CQFunctions(addr uint64) (CQ, Functions, error) {
	var q CQ
	fns, err := p.late("ibv_cq", func(c *collector) (err error) {
		if q, err = p.cq(addr, nil); err != nil {
			return err
		}
		f, err := p.context(q.Context)
		if err != nil {
			return err
		}
		p.contextFunctions(f, c)
		if q.Ex {
			return p.memberFunctions(addr, p.layout().cqEx, p.layout().cqExEnd, "live CQ", c)
		}
		return nil
	})
	return q, fns, err
}

// late reads an object that was met after the Scan. Memory or its provider may
// have been mapped since: then the mappings are read again.
func (p *Process) late(what string, read func(*collector) error) (Functions, error) {
	c := &collector{}
	err := read(c)
	if err != nil && !errors.Is(err, errGone) {
		if _, err := p.Refresh(); err != nil {
			return nil, err
		}
		c = &collector{}
		err = read(c)
	}
	if err != nil {
		return nil, p.wrap("read the "+what, err)
	}
	return c.sorted(), nil
}
