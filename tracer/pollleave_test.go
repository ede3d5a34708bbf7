package tracer

import (
	"debug/elf"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

// polls is a program that polls on command, see testdata/polls.c, whose poll
// function is observed at its site.
type polls struct {
	t   *testing.T
	in  io.Writer
	out io.Reader
	f   *follower
	a   *attacher
	s   *pollSlot
}

func startPolls(t *testing.T) *polls {
	t.Helper()
	testenv.Root(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the path of poll functions is looked for on x86-64 only")
	}
	program := filepath.Join(t.TempDir(), "polls")
	run(t, nil, "gcc", "-O1", "-fcf-protection=none", "-o", program, "testdata/polls.c")
	p := &polls{t: t}
	child := exec.Command(program)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = out
	pid, in := startUnharmed(t, child)
	p.in, p.a = in, attacherOf(t, pid, false)
	p.f = newFollower(&targets{cfg: &Config{Log: debugLog(t)}, all: []*target{{attach: p.a, pidfd: -1, snap: &locate.Snapshot{}}}}, p.a.kernel, p.a.links)
	lib := &locate.Library{Path: program, Open: program, Role: locate.RoleMLX5}
	lib.FileID = fileOf(t, pid, program)
	poll, site, destroy := functionOf(t, lib, "poll_cq"), functionOf(t, lib, "consumed"), functionOf(t, lib, "destroy_qp")
	poll.Verb, destroy.Verb = locate.PollCQ, locate.DestroyQP
	_, err = p.a.attach(locate.Functions{poll, destroy})
	layout := locate.MLX5Layout{Library: lib}
	layout.CQ.Verified, layout.CQ.ConsIndex, layout.CQ.CQESize, layout.CQ.ActiveBuf = true, 256, 260, 264
	err = errors.Join(err, p.a.kernel.setLayout(layout), p.a.kernel.addTarget(uint32(pid), false), p.a.kernel.setOpen(true))
	if err != nil {
		t.Fatal(err)
	}
	p.s = p.a.polls[0]
	p.s.candidates = []pollpath.Candidate{{Sites: []uint64{site.Vaddr}}}
	const rbx, r12 = 3, 12
	p.s.path = pollPath{candidate: p.s.candidate(), learned: pollpath.Learned{CQ: rbx, WC: r12}}
	p.poll() // the switch waits for nobody
	if err := errors.Join(p.f.attachSites(p.s, "known"), p.f.switchPoll(p.s)); err != nil || p.s.state != pollSites {
		t.Fatalf("state %d: %v", p.s.state, err)
	}
	return p
}

// fileOf is that of a program's code in a process.
func fileOf(t *testing.T, pid int, program string) (id locate.FileID) {
	t.Helper()
	waitFor(t, "the program to be mapped", func() bool {
		maps, err := image.ReadMaps(uint32(pid))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(maps, func(m image.Mapping) bool { return m.Exec && m.Path == program })
		if i >= 0 {
			id = locate.FileID{Dev: maps[i].Dev, Ino: maps[i].Inode}
		}
		return i >= 0
	})
	return id
}

// functionOf is one of a program, by its symbol.
func functionOf(t *testing.T, lib *locate.Library, name string) locate.Function {
	t.Helper()
	f, err := elf.Open(lib.Open)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	v := symbols[i].Value
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && v >= p.Vaddr && v < p.Vaddr+p.Filesz {
			return locate.Function{Library: lib, Vaddr: v, Offset: v - p.Vaddr + p.Off}
		}
	}
	t.Fatalf("%s is in no segment", name)
	return locate.Function{}
}

// tell gives a command, and waits for its answer.
func (p *polls) tell(command, answer byte) {
	p.t.Helper()
	if _, err := p.in.Write([]byte{command}); err != nil {
		p.t.Fatal(err)
	}
	var b [1]byte
	if _, err := io.ReadFull(p.out, b[:]); err != nil || b[0] != answer {
		p.t.Fatalf("%q is answered by %q: %v", command, b, err)
	}
}

func (p *polls) begin() { p.t.Helper(); p.tell('p', 'w') }
func (p *polls) end()   { p.t.Helper(); p.tell('g', 'd') }
func (p *polls) poll()  { p.t.Helper(); p.begin(); p.end() }

func (p *polls) counts() siteCounts {
	p.t.Helper()
	c, err := p.a.kernel.siteCounts(p.s)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// want fails the test if other numbers of completions were taken at the site, and
// missed there.
func (p *polls) want(what string, taken, missed uint32) {
	p.t.Helper()
	if c := p.counts(); c.taken != taken || c.missed != missed {
		p.t.Errorf("%s: %d taken, %d missed; want %d, %d", what, c.taken, c.missed, taken, missed)
	}
}

// TestPollFollowed: a completion that passes no site is missed by the consumer's
// index at the next one, unless the probes were out meanwhile, or a QP that is
// destroyed took its entries from the queue.
func TestPollFollowed(t *testing.T) {
	p := startPolls(t)
	p.poll()
	p.poll()
	p.want("two polls", 2, 0)
	p.tell('m', 'd')
	p.poll()
	p.want("one elsewhere", 3, 1)
	p.tell('m', 'd')
	p.tell('m', 'd')
	p.poll()
	p.poll()
	p.want("two elsewhere", 5, 3)
	if err := p.f.pause(); err != nil {
		t.Fatal(err)
	}
	p.tell('m', 'd')
	p.poll()
	p.poll()
	if err := p.f.goOn(); err != nil {
		t.Fatal(err)
	}
	p.poll()
	p.want("a pause", 6, 3)
	p.tell('m', 'd')
	p.poll()
	p.want("one elsewhere after the pause", 7, 4)
	p.tell('c', 'd')
	p.poll()
	p.want("a QP destroyed", 8, 4)
}

// TestPollLeaves: on the way back to entry and return, a poll that began before its
// entry was probed is reported by the site, and so is one that began when the site
// was still to report; the site stays until then.
func TestPollLeaves(t *testing.T) {
	p := startPolls(t)
	p.poll()
	p.begin()
	if err := p.f.observeWhole(p.s, errors.New("test")); err != nil {
		t.Fatal(err)
	}
	p.end()
	p.want("a poll that began before", 2, 0)
	// As one whose entry is hit before the mode is changed.
	if err := p.a.kernel.setPollMode(p.s, bpf.RdmaPollModePOLL_SITE); err != nil {
		t.Fatal(err)
	}
	p.begin()
	if err := p.a.kernel.setPollMode(p.s, bpf.RdmaPollModePOLL_LEAVE); err != nil {
		t.Fatal(err)
	}
	if err := p.f.stepPoll(p.s, pollStep); err != nil || p.s.state != pollLeaving || !p.a.has(p.s, p.s.site()) {
		t.Errorf("the site was not left in: state %d, %v", p.s.state, err)
	}
	p.end()
	p.want("a poll that had the site to report", 3, 0)
	p.poll()
	p.want("a poll that its return reports", 3, 0)
	if err := p.f.stepPoll(p.s, pollStep); err != nil || p.s.state != pollKept || p.a.has(p.s, p.s.site()) {
		t.Errorf("the site is still in: state %d, %v", p.s.state, err)
	}
}
