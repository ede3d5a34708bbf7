package guest

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// TestEmptyPolls traces a program that polls busily. Once it is known where
// librxe's poll function consumes completions, nothing runs at its entry and its
// return any more, however often the queue is found empty. The report counts what
// the program did, and knows when the kernel wrote each completion, all along.
func TestEmptyPolls(t *testing.T) {
	inGuest(t)
	counting, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	c := program{name: "send_lat, empty polls", argv: "ib_send_lat -x 0 -F -n 2500", sends: 2500, receives: 2500}
	p := startPair(t, c.argv)
	tr := startTrace(t, "-p", strconv.Itoa(p.client.Process.Pid))
	p.relay.release()
	noEntries(t, p.client)
	p.client.wait(t)
	p.server.wait(t)
	got := tr.result(t)
	got.sound(t)
	c.iterated(t, p.client.output.String())
	if b := got.Kinds["send"]; b.Posted != c.sends || b.Completed != c.sends {
		t.Errorf("%d sends were made, counted: %+v", c.sends, b)
	}
	if b := got.Kinds["receive"]; b.Completed != c.receives {
		t.Errorf("%d receives were completed, counted: %+v", c.receives, b)
	}
	written(t, got)
	exact(t, &c, got)
	if !slices.ContainsFunc(got.ctx.Costs, func(n string) bool {
		return strings.Contains(n, "empty polls cost nothing") && strings.Contains(n, "librxe")
	}) {
		t.Errorf("it does not say that empty polls cost nothing: %q", got.ctx.Costs)
	}
	unplaced := 0
	for i := range got.events {
		if e := &got.events[i]; bySite(e) && e.Flags&event.CompletionEntryValid == 0 {
			unplaced++
		}
	}
	if unplaced > 0 {
		t.Errorf("of %d completions their entries were not found", unplaced)
	}
	// Each hit has to find the ring's index one further.
	const beside = "completions beside a poll's path"
	if i := slices.IndexFunc(got.ctx.Counters, func(c event.Counter) bool { return c.Name == beside }); i < 0 || got.ctx.Counters[i].Value > 0 {
		t.Errorf("%s: not 0 of %v", beside, got.ctx.Counters)
	}
	for i := range got.events {
		if e := &got.events[i]; e.Kind == event.KindLoss {
			t.Errorf("lost: %+v", e.Loss)
		}
	}
	feature("empty polls of librxe", "no hits, once the path that consumes completions is learned")
}

// noEntries waits until a client's completions are seen without its polls' entries and returns.
func noEntries(t *testing.T, client *process) {
	t.Helper()
	at, before := uint64(0), uint64(0)
	waitFor(t, "completions without a poll's entry and return", func() bool {
		client.running(t)
		site := runs(t, bpf.RdmaProgPollSite)
		if site < at+300 {
			return false
		}
		whole := runs(t, bpf.RdmaProgPollEnter, bpf.RdmaProgPollExit)
		same := whole == before
		at, before = site, whole
		return same
	})
}

// bySite says that a completion was reported where it was consumed: the entry of
// its poll was not seen.
func bySite(e *event.Event) bool { return e.Kind == event.KindCompletion && e.Verb.Begin == 0 }

// runs is how often programs ran so far, by their names.
func runs(t *testing.T, names ...string) (n uint64) {
	t.Helper()
	found := 0
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		if ran, ok := runsOf(t, id, names); ok {
			found++
			n += ran
		}
	}
	if found != len(names) {
		t.Fatalf("%d programs are called %q", found, names)
	}
	return n
}

func runsOf(t *testing.T, id ebpf.ProgramID, names []string) (n uint64, ok bool) {
	t.Helper()
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, info.Name) {
		return 0, false
	}
	stats, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats.RunCount, true
}
