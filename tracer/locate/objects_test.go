package locate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// bare are QPs and CQs without what the program does not tell of them.
func bare(qps []QP, cqs []CQ) (q []QP, c []CQ) {
	for _, x := range qps {
		q = append(q, QP{Addr: x.Addr, Context: x.Context, Num: x.Num, Type: x.Type, Ex: x.Ex, SigAll: x.SigAll})
	}
	for _, x := range cqs {
		c = append(c, CQ{Addr: x.Addr, Context: x.Context, CQE: x.CQE, ChannelFD: x.ChannelFD, Ex: x.Ex})
	}
	slices.SortFunc(q, func(a, b QP) int { return cmp.Compare(a.Addr, b.Addr) })
	slices.SortFunc(c, func(a, b CQ) int { return cmp.Compare(a.Addr, b.Addr) })
	return q, c
}

// same compares a snapshot with what the program says it has; the program
// knows sq_sig_all from the beginning, the snapshot when it can prove it.
func (p *program) same(t *testing.T, s *Snapshot, sigProven bool) {
	t.Helper()
	wantQ, wantC := bare(p.qps, p.cqs)
	gotQ, gotC := bare(s.QPs, s.CQs)
	if !sigProven {
		for i := range wantQ {
			wantQ[i].SigAll = 2
		}
	}
	if diff := gocmp.Diff(wantQ, gotQ); diff != "" {
		t.Errorf("queue pairs: %s", diff)
	}
	if diff := gocmp.Diff(wantC, gotC); diff != "" {
		t.Errorf("completion queues: %s", diff)
	}
	var contexts []uint64
	for _, c := range s.Contexts {
		contexts = append(contexts, c.Addr)
		if c.Device != "mlx5_0" || c.DevName != "uverbs0" || c.Provider == nil || c.Provider.Role&RoleMLX5 == 0 {
			t.Errorf("context %+v", c)
		}
	}
	if diff := gocmp.Diff(slices.Sorted(slices.Values(p.contexts)), slices.Sorted(slices.Values(contexts))); diff != "" {
		t.Errorf("contexts: %s", diff)
	}
}

// TestObjects: every object of a process is found, of two contexts on one
// device, and nothing else: not the sixteen QPs that were destroyed.
func TestObjects(t *testing.T) {
	prog := device(t).objects(t)
	p := openProcess(t, prog.pid)
	s := scan(t, p)
	prog.same(t, s, false)
	t.Logf("notes %q, %+v", s.Notes, s.Stats)
	for _, l := range s.MLX5 {
		if l.CQ.Verified || l.QP.Verified {
			t.Errorf("verified without any traffic: %+v", l)
		}
	}
	if pages, err := p.mem.present(prog.untouched.begin, int(prog.untouched.size/p.mem.page)); err != nil || slices.Contains(pages, true) {
		t.Errorf("the scan faulted pages in: %v", err)
	}
	if !p.mem.avoid[prog.watched.begin] {
		t.Error("memory that a userfaultfd watches is not avoided")
	}
	if p.mem.at(make([]byte, 8), prog.watched.begin) == nil {
		t.Error("memory that a userfaultfd watches was read")
	}

	prog.tell(t, "connect")
	prog.tell(t, "post 40")
	s = scan(t, p)
	prog.same(t, s, true)
	if len(s.MLX5) != 1 || !s.MLX5[0].CQ.Verified || !s.MLX5[0].QP.Verified || !s.MLX5[0].QP.SigProven {
		t.Fatalf("not verified after traffic: %+v", s.MLX5)
	}
	t.Logf("%+v", s.MLX5[0])
	for _, q := range s.QPs {
		if q.MaxSendWR < 64 {
			t.Errorf("queue pair %#x: max_send_wr %d, 64 were asked for", q.Num, q.MaxSendWR)
		}
	}

	prog.tell(t, "close")
	second := prog.contexts[1]
	prog.contexts = prog.contexts[:1]
	prog.qps = slices.DeleteFunc(prog.qps, func(q QP) bool { return q.Context == second })
	prog.cqs = slices.DeleteFunc(prog.cqs, func(c CQ) bool { return c.Context == second })
	if _, err := p.Refresh(); err != nil {
		t.Fatal(err)
	}
	prog.same(t, scan(t, p), true)
}

// TestPrivateFields: the layout that is derived reads what the program did.
func TestPrivateFields(t *testing.T) {
	prog := device(t).objects(t)
	p := openProcess(t, prog.pid)
	prog.tell(t, "connect")
	const n = 20
	prog.tell(t, "post 20")
	s := scan(t, p)
	if len(s.MLX5) != 1 || !s.MLX5[0].CQ.Verified || !s.MLX5[0].QP.Verified {
		t.Fatalf("not verified: %+v", s.MLX5)
	}
	l := s.MLX5[0]
	b, err := p.mem.some(prog.cqs[0].Addr, privateBytes, privateBytes/2)
	if err != nil {
		t.Fatal(err)
	}
	if cons, size := u32(b, uint64(l.CQ.ConsIndex)), u32(b, uint64(l.CQ.CQESize)); cons != n+1 || size != 64 {
		t.Errorf("cons_index %d, entries of %d bytes; %d completions were reaped", cons, size, n+1)
	}
	for i, q := range prog.qps[:2] {
		b, err := p.mem.some(q.Addr, privateBytes, privateBytes/2)
		if err != nil {
			t.Fatal(err)
		}
		cur, head, tail := u32(b, uint64(l.QP.SQCurPost)), u32(b, uint64(l.QP.SQHead)), u32(b, uint64(l.QP.SQTail))
		if cur != n || head != n || tail != n {
			t.Errorf("queue pair %d: cur_post %d, head %d, tail %d after %d writes", i, cur, head, tail, n)
		}
	}
}

// TestLateObjects: what is made after the scan is read at its address, and
// libmlx5's second wr_complete after the QP became ready to send.
func TestLateObjects(t *testing.T) {
	prog := device(t).objects(t)
	p := openProcess(t, prog.pid)
	s := scan(t, p)
	before := len(prog.qps)
	prog.tell(t, "late")
	q := prog.qps[before]
	got, fns, err := p.QPFunctions(q.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if got.Num != q.Num || !got.Ex {
		t.Errorf("queue pair %+v", got)
	}
	first := fns.Of(WRComplete)
	if len(first) != 1 || len(fns.Of(PostSend)) != 1 || len(fns.Of(WRRDMAWrite)) != 1 {
		t.Fatalf("functions of a late queue pair: %+v", fns)
	}
	prog.tell(t, "modify")
	_, fns, err = p.QPFunctions(q.Addr)
	if err != nil {
		t.Fatal(err)
	}
	second := fns.Of(WRComplete)
	if len(second) != 1 || second[0].Offset == first[0].Offset {
		t.Errorf("wr_complete is at %#x before and at %#x after ready-to-send", first[0].Offset, second[0].Offset)
	}
	for _, f := range []Function{first[0], second[0]} {
		if !slices.ContainsFunc(s.Functions, func(g Function) bool { return g.Verb == WRComplete && g.Offset == f.Offset }) {
			t.Errorf("wr_complete at %#x was not known from the file", f.Offset)
		}
	}
	c := prog.cqs[len(prog.cqs)-1]
	cq, fns, err := p.CQFunctions(c.Addr)
	if err != nil || !cq.Ex || cq.CQE != c.CQE || len(fns.Of(StartPoll)) != 1 || len(fns.Of(PollCQ)) != 1 {
		t.Errorf("late completion queue %+v, %v: %+v", cq, err, fns)
	}
	d, fns, err := p.ContextFunctions(prog.contexts[1])
	if err != nil || d.Device != "mlx5_0" || len(fns.Of(PostSend)) != 1 || len(fns.Of(WRComplete)) != 2 {
		t.Errorf("context %+v, %v: %+v", d, err, fns)
	}
	layouts, err := p.MLX5(context.Background(), []uint64{q.Addr}, []uint64{c.Addr})
	if err != nil || len(layouts) != 1 {
		t.Errorf("layouts %+v, %v", layouts, err)
	}
}

// TestNoObject: addresses at which no object lies are refused, not believed.
func TestNoObject(t *testing.T) {
	prog := device(t).objects(t)
	p := openProcess(t, prog.pid)
	for _, addr := range []uint64{0, 1, 8, 4096, prog.untouched.begin, prog.watched.begin, prog.contexts[0] + 8, prog.qps[0].Addr + 8,
		prog.qps[0].Addr - 8, 1 << 63, ^uint64(7)} {
		if _, _, err := p.ContextFunctions(addr); err == nil {
			t.Errorf("a context at %#x", addr)
		}
		if q, _, err := p.QPFunctions(addr); err == nil {
			t.Errorf("a queue pair at %#x: %+v", addr, q)
		}
		if q, _, err := p.CQFunctions(addr); err == nil {
			t.Errorf("a completion queue at %#x: %+v", addr, q)
		}
	}
}

// TestBudget: what is not looked at is said.
func TestBudget(t *testing.T) {
	prog := device(t).objects(t)
	p := openProcess(t, prog.pid)
	s, err := p.Scan(context.Background(), Options{Budget: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if s.Stats.BytesLeft == 0 || !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "budget") }) {
		t.Errorf("%+v, notes %q", s.Stats, s.Notes)
	}
	if len(s.Functions.Of(PostSend)) == 0 {
		t.Error("without memory the files still tell post_send")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Scan(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled scan: %v", err)
	}
}
