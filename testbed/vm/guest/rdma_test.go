package guest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// What is traced, with its number of iterations. perftest's event loop hangs
// now and then on a busy guest, ibv_rc_pingpong's never did.
var programs = []program{
	{name: "rc_pingpong, events", argv: "ibv_rc_pingpong -e -g 0 -n 200", events: true, sends: 200, receives: 200, posted: true},
	{name: "send_lat, polling", argv: "ib_send_lat -x 0 -F -n 200", sends: 200, receives: 200},
	{name: "write_bw, polling", argv: "ib_write_bw -x 0 -F -s 4096 -n 300", sends: 300},
}

// TestCounted traces running clients with -p, from before their first work
// request to their end: the report has to count what the programs did.
func TestCounted(t *testing.T) {
	inGuest(t)
	for _, c := range programs {
		t.Run(c.name, func(t *testing.T) {
			p := startPair(t, c.argv)
			got := p.traced(t)
			c.iterated(t, p.client.output.String())
			if b := got.Kinds["send"]; b.Posted != c.sends || b.Completed != c.sends {
				t.Errorf("%d sends were made, counted: %+v", c.sends, b)
			}
			if n := got.receives(); n != c.receives {
				t.Errorf("%d receives were completed, seen %d", c.receives, n)
			}
			if b := got.Kinds["receive"]; !c.posted && b.Completed != c.receives {
				t.Errorf("%d receives were completed, counted: %+v", c.receives, b)
			}
			if got.Latency.Count == 0 {
				t.Error("no work request was measured")
			}
			written(t, got)
			exact(t, &c, got)
			judge(t, &c, got)
			lockOfMappings(t, got)
			feature("-p "+c.name, "%d of %d sends, %d of %d receives", got.Kinds["send"].Completed, c.sends,
				got.receives(), c.receives)
			if c.events {
				chain(t, got)
			} else {
				onTopOnly(t, got)
			}
		})
	}
}

// lockOfMappings: where each hit of a probe takes the lock of its process's mappings,
// which is before Linux 6.14, the trace says so. The tracer goes by the kernel's types.
func lockOfMappings(t *testing.T, got *traced) {
	t.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(got.ctx.Host.Kernel, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("kernel %q: %v", got.ctx.Host.Kernel, err)
	}
	takes := major < 6 || major == 6 && minor < 14
	says := slices.ContainsFunc(got.ctx.Notes, func(n string) bool { return strings.Contains(n, "takes the lock of its process's memory mappings") })
	if says != takes {
		t.Errorf("on kernel %s each hit takes the lock of mappings: %t, said: %t", got.ctx.Host.Kernel, takes, says)
	}
}

func (got *traced) completions() (n int64) {
	for i := range got.events {
		if got.events[i].Kind == event.KindCompletion {
			n++
		}
	}
	return n
}

// receives counts completions of receives.
func (got *traced) receives() (n int64) {
	for i := range got.events {
		// IBV_WC_RECV and IBV_WC_RECV_RDMA_WITH_IMM
		if e := &got.events[i]; e.Kind == event.KindCompletion && e.Verb.Opcode&128 != 0 {
			n++
		}
	}
	return n
}

// iterated checks that a program did as many iterations as it was told to.
func (c *program) iterated(t *testing.T, output string) {
	t.Helper()
	says := regexp.MustCompile(fmt.Sprintf(`(?m)^%d iters in|^ +\d+ +%d +`, c.sends, c.sends))
	if !says.MatchString(output) {
		t.Errorf("%s did not do %d iterations: %s", c.argv, c.sends, output)
	}
}

// TestStarted lets rdmatrace start the client: every receive is seen posted.
func TestStarted(t *testing.T) {
	inGuest(t)
	c := program{argv: "ibv_rc_pingpong -e -g 0 -n 100", sends: 100, receives: 100}
	p, client := startServer(t, c.argv)
	p.relay.release()
	tr := startTrace(t, append([]string{"--"}, client...)...)
	got := tr.result(t)
	p.server.wait(t)
	got.sound(t)
	c.iterated(t, tr.output.String())
	// It posts 500 receives and uses as many as there are iterations.
	if b := got.Kinds["receive"]; b.Posted != 500 || b.Completed != c.receives || b.Outstanding != 400 {
		t.Errorf("receives: %+v", b)
	}
	if b := got.Kinds["send"]; b.Posted != c.sends || b.Completed != c.sends {
		t.Errorf("sends: %+v", b)
	}
	vector(t, got)
	feature("-- rc_pingpong, events", "%d of %d sends, %d of %d receives", got.Kinds["send"].Completed, c.sends,
		got.Kinds["receive"].Completed, c.receives)
}

// vector: the program makes its CQ for completion vector 0, and the lines of its
// device and where they are handled are known.
func vector(t *testing.T, got *traced) {
	t.Helper()
	made := 0
	for i := range got.events {
		if o := got.events[i].Object; o != nil && o.CQ != nil && o.Event == event.ObjectCreated {
			made++
			if o.CQ.CompVector != 0 {
				t.Errorf("a CQ was made for vector %d", o.CQ.CompVector)
			}
		}
	}
	placed := 0
	for _, line := range got.ctx.IRQs {
		if strings.HasPrefix(line.Device, "rxe") && line.CPUs != "" {
			placed++
		}
	}
	if made == 0 || placed == 0 {
		t.Errorf("%d CQs were made; %d lines have a device and CPUs: %+v", made, placed, got.ctx.IRQs)
	}
}

// TestAlive attaches in the middle of the traffic. The queue pair's place is
// unknown then: what is counted is a work request of the program or excluded.
func TestAlive(t *testing.T) {
	inGuest(t)
	p := startPair(t, "ibv_rc_pingpong -e -g 0 -n 100000000")
	p.relay.release()
	tr := startTrace(t, "-p", strconv.Itoa(p.client.Process.Pid))
	const enough = 300
	tr.sees(t, enough)
	got := tr.interrupt(t)
	p.client.running(t)
	got.sound(t)
	functions(t, got)
	// One send at most was under way when it was attached.
	b, sent := got.Kinds["send"], got.completions()-got.receives()
	if b.Completed+b.Excluded < sent-1 {
		t.Errorf("%d sends were completed, counted: %+v", sent, b)
	}
	feature("-p on a queue pair in use", "%d sends measured, %d excluded", b.Completed, b.Excluded)
}

// functions: librxe's are found without symbols, where the library itself says
// they are.
func functions(t *testing.T, got *traced) {
	t.Helper()
	ops := command(binary(t, "ops"), "rxe0")
	ops.start(t)
	ops.wait(t)
	checked := 0
	for line := range strings.Lines(ops.output.String()) {
		var name, library string
		var offset uint64
		if _, err := fmt.Sscanf(line, "%s %s %v", &name, &library, &offset); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		checked++
		i := slices.IndexFunc(got.Probes, func(p outcome.Probe) bool { return p.Name == name && strings.HasSuffix(p.Library, library) })
		if i < 0 {
			t.Errorf("%s is at %s+%#x, and has no probe", name, library, offset)
			continue
		}
		at, err := strconv.ParseUint(got.Probes[i].Offset, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		// The probe may be behind an endbr64 and a first push or two.
		if pr := got.Probes[i]; at < offset || at > offset+16 || pr.Error != "" {
			t.Errorf("%s is at %s+%#x, the probe: %+v", name, library, offset, pr)
		}
		how, _, _ := strings.Cut(got.Probes[i].Source, "; taken out")
		feature("librxe "+name, "found: %s", how)
	}
	if checked != 4 {
		t.Errorf("the library said: %s", ops.output.String())
	}
}
