package locate

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// cpu is the processor time this process has used, ns.
func cpu() int64 {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

// opsVerbs are those of every context; exVerbs those of a QP with the write or
// send builders.
var (
	opsVerbs = []Verb{PostSend, PostRecv, PostSRQRecv, PollCQ, ReqNotifyCQ}
	exVerbs  = []Verb{WRStart, WRComplete, WRAbort, WRSetSGE, WRSetSGEList, WRSetInlineData}
)

// checkFunctions: the live functions are there, once for each verb, and the
// files tell the same.
func checkFunctions(t *testing.T, s *Snapshot, ex bool) {
	t.Helper()
	for _, n := range s.Notes {
		t.Errorf("note: %s", n)
	}
	want := map[Verb]string{}
	for _, v := range opsVerbs {
		want[v] = "ops table"
	}
	if ex {
		for _, v := range exVerbs {
			want[v] = "code that fills it in"
		}
	}
	for v, source := range want {
		live := 0
		for _, f := range s.Functions.Of(v) {
			if !f.Live {
				continue
			}
			live++
			if !strings.Contains(f.Source, source) {
				t.Errorf("%v at %#x is known from %q only", v, f.Offset, f.Source)
			}
		}
		if live == 0 || live > 1 && v != WRComplete {
			t.Errorf("%d live functions for %v", live, v)
		}
	}
	for _, f := range s.Functions {
		if f.Live && !strings.Contains(f.Source, ";") {
			t.Errorf("%v at %#x is known from %q only", f.Verb, f.Offset, f.Source)
		}
	}
}

// TestPerftest: of real programs that run, twenty looks each find the one
// context, its queues and functions, and the files agree.
func TestPerftest(t *testing.T) {
	d := device(t)
	tests := []struct {
		args     []string
		qps, cqs int
		ex       bool
		events   bool
		polls    bool // both sides reap completions
	}{
		{args: []string{"ib_write_bw", "-q", "3", "-D", "250"}, qps: 3, cqs: 1, ex: true},
		{args: []string{"ib_write_bw", "-D", "250", "--use_old_post_send"}, qps: 1, cqs: 1},
		{args: []string{"ib_send_lat", "-n", "4000000", "-e"}, qps: 1, cqs: 2, ex: true, events: true, polls: true},
		{args: []string{"ib_send_bw", "-D", "250", "-c", "UD", "-s", "1024"}, qps: 1, cqs: 2, ex: true},
		{args: []string{"ibv_rc_pingpong", "-n", "100000000"}, qps: 1, cqs: 1, polls: true},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			server, client := d.pair(t, tt.args...)
			for side, pid := range map[string]int{"server": server, "client": client} {
				begin := cpu()
				p := openProcess(t, pid)
				ready := func(s *Snapshot) bool {
					traffic := len(s.MLX5) == 1 && s.MLX5[0].CQ.Verified && s.MLX5[0].QP.Verified
					return len(s.QPs) == tt.qps && len(s.CQs) == tt.cqs &&
						!slices.ContainsFunc(s.QPs, func(q QP) bool { return q.State < 2 }) &&
						(traffic || side == "server" && !tt.polls)
				}
				var s *Snapshot
				await(t, pid, "it had traffic", func() bool {
					if _, err := p.Refresh(); err != nil {
						t.Fatal(err)
					}
					s = scan(t, p)
					return ready(s)
				})
				checkFunctions(t, s, tt.ex)
				for i := range 20 {
					again := scan(t, p)
					if len(again.Contexts) != 1 || len(again.QPs) != tt.qps || len(again.CQs) != tt.cqs ||
						len(again.Functions) != len(s.Functions) || !ready(again) {
						t.Errorf("look %d: contexts %v, queue pairs %v, completion queues %v, layouts %+v",
							i, again.Contexts, again.QPs, again.CQs, again.MLX5)
					}
				}
				for _, q := range s.QPs {
					if q.Ex != tt.ex {
						t.Errorf("queue pair %+v", q)
					}
				}
				if n := slices.IndexFunc(s.CQs, func(c CQ) bool { return c.ChannelFD >= 0 }); tt.events != (n >= 0) {
					t.Errorf("completion queues %+v", s.CQs)
				}
				fresh := openProcess(t, pid)
				spent := cpu()
				first := scan(t, fresh)
				t.Logf("%s: first look %v, %v of processor time; later ones %v; %d KiB read; the whole test %v",
					side, first.Stats.Took, time.Duration(cpu()-spent), s.Stats.Took, first.Stats.BytesRead>>10, time.Duration(cpu()-begin))
			}
		})
	}
}

// checkOpen: a library's Open leads to the very file.
func checkOpen(t *testing.T, l *Library) {
	t.Helper()
	o := openObject(t, l.Open)
	if o.BuildID != l.BuildID || o.BuildID == "" {
		t.Errorf("%s opens a file of build-id %q, not %q", l.Open, o.BuildID, l.BuildID)
	}
	var st unix.Stat_t
	if err := unix.Stat(l.Open, &st); err != nil || st.Ino != l.Ino {
		t.Errorf("%s is inode %d, %v, not %d", l.Open, st.Ino, err, l.Ino)
	}
}

// livePostSend is the post_send that a live context names.
func livePostSend(t *testing.T, s *Snapshot) Function {
	t.Helper()
	fns := s.Functions.Of(PostSend)
	i := slices.IndexFunc(fns, func(f Function) bool { return f.Live })
	if i < 0 {
		t.Fatalf("no live post_send: %+v", fns)
	}
	return fns[i]
}

// TestDeleted: a library that was deleted while the process runs, as after an
// update, is found and can be opened.
func TestDeleted(t *testing.T) {
	d := device(t)
	verbs, _ := installed(t)
	dir := t.TempDir()
	run(t, exec.Command("cp", verbs, filepath.Join(dir, "libibverbs.so.1")))
	prog := d.objects(t, "LD_LIBRARY_PATH="+dir)
	if err := os.Remove(filepath.Join(dir, "libibverbs.so.1")); err != nil {
		t.Fatal(err)
	}
	p := openProcess(t, prog.pid)
	s := scan(t, p)
	prog.same(t, s, false)
	i := slices.IndexFunc(s.Libraries, func(l *Library) bool { return l.Role&RoleVerbs != 0 })
	if i < 0 || !s.Libraries[i].Deleted || s.Libraries[i].Path != filepath.Join(dir, "libibverbs.so.1") {
		t.Fatalf("libraries: %+v", s.Libraries)
	}
	checkOpen(t, s.Libraries[i])
	if fns := s.Functions.Of(ModifyQP); len(fns) != 1 || fns[0].Library != s.Libraries[i] {
		t.Errorf("ibv_modify_qp: %+v", fns)
	}
}

// TestOtherMounts: a process that sees another file under the same path, as in
// a container, is probed in its own file.
func TestOtherMounts(t *testing.T) {
	d := device(t)
	tool(t, "unshare")
	_, providers := installed(t)
	i := slices.IndexFunc(providers, func(p string) bool { return strings.Contains(p, "libmlx5-") })
	if i < 0 {
		testenv.Missing(t, "needs the mlx5 provider")
	}
	path, err := filepath.EvalSymlinks(providers[i])
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(t.TempDir(), "copy.so")
	run(t, exec.Command("cp", path, mine))
	inside := d.start(t, buildObjects(t, "-libverbs"), []string{"unshare", "-m", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, mine, path})
	outside := d.objects(t)
	in, out := livePostSend(t, scan(t, openProcess(t, inside.pid))), livePostSend(t, scan(t, openProcess(t, outside.pid)))
	if in.Library.Path != path || in.Library.Path != out.Library.Path || in.Offset != out.Offset {
		t.Errorf("post_send inside %+v of %+v, outside %+v of %+v", in, in.Library, out, out.Library)
	}
	if in.Library.Ino == out.Library.Ino {
		t.Error("both have one file: the test sees nothing")
	}
	if in.Library.Build != out.Library.Build || in.Library.Build == (Build{}) {
		t.Error("copies of one library are two builds")
	}
	checkOpen(t, in.Library)
	checkOpen(t, out.Library)
}

// TestStaticallyLinked: a program with libibverbs and the provider inside has
// its functions and objects found by its live context alone.
func TestStaticallyLinked(t *testing.T) {
	d := device(t)
	bin := buildObjects(t, "-DRDMA_STATIC_PROVIDERS=mlx5", "-Wl,-Bstatic", "-libverbs", "-lmlx5", "-libverbs", "-Wl,-Bdynamic",
		"-lnl-route-3", "-lnl-3", "-lpthread")
	prog := d.start(t, bin, nil)
	s := scan(t, openProcess(t, prog.pid))
	if len(s.Contexts) != 2 || len(s.CQs) != len(prog.cqs) || len(s.QPs) < len(prog.qps) {
		t.Errorf("contexts %v, queue pairs %v, completion queues %v", s.Contexts, s.QPs, s.CQs)
	}
	names := symbolNames(t, bin) // archives have a prefix before those of other files
	for v, want := range map[Verb]string{PostSend: "mlx5_post_send", PostRecv: "mlx5_post_recv", PollCQ: "mlx5_poll_cq_v1",
		ReqNotifyCQ: "mlx5_arm_cq", WRStart: "mlx5_send_wr_start", WRRDMAWrite: "mlx5_send_wr_rdma_write"} {
		fns := s.Functions.Of(v)
		if len(fns) != 1 || !fns[0].Live || fns[0].Library.Path != bin || !strings.HasSuffix(names[fns[0].Vaddr], want) {
			t.Errorf("%v: %+v, not %s: %s", v, fns, want, names[fns[0].Vaddr])
		}
	}
	if !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "linked into") }) {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestExitWhileScanned: a process may end at any moment of the look at it.
// That gives an error or a result, and always one of them.
func TestExitWhileScanned(t *testing.T) {
	d := device(t)
	gone := 0
	for i := range 12 {
		prog := d.objects(t)
		p, err := Open(prog.pid)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range i * 3 { // further into the look each time
				runtime.Gosched()
			}
			killAll(prog.pid)
		}()
		for {
			s, err := p.Scan(t.Context(), Options{})
			if (s == nil) == (err == nil) {
				t.Fatalf("both or neither: %v, %v", s, err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "exited") {
					t.Errorf("the error does not say that it exited: %v", err)
				}
				gone++
				break
			}
		}
		<-done
		if _, err := p.Refresh(); err == nil {
			t.Error("the mappings of a process that has gone were read")
		}
		if _, _, err := p.QPFunctions(prog.qps[0].Addr); err == nil {
			t.Error("an object of a process that has gone was read")
		}
		p.Close()
	}
	if gone != 12 {
		t.Errorf("%d of 12 said that the process had gone", gone)
	}
}
