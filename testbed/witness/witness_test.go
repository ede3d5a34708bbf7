package witness

import (
	"strings"
	"testing"
)

// As kernel 6.1 prints it, with a command that looks like a record.
const history = `
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
  a [000] 1.0: b-40      [001] d..2.     1.000100: sched_switch: prev_comm=a [000] 1.0: b prev_pid=40 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
          <idle>-0       [000] d..2.     1.000200: irq_handler_entry: irq=27 name=virtio3-input.0
          <idle>-0       [000] d..2.     1.000290: softirq_raise: vec=3 [action=NET_RX]
          <idle>-0       [000] d..2.     1.000300: irq_handler_exit: irq=27 ret=handled
          <idle>-0       [000] d..2.     1.000310: softirq_entry: vec=3 [action=NET_RX]
          <idle>-0       [000] d..2.     1.000350: local_timer_entry: vector=236
          <idle>-0       [000] d..2.     1.000360: local_timer_exit: vector=236
          <idle>-0       [000] d..2.     1.000400: sched_waking: comm=b pid=40 prio=120 target_cpu=001
          <idle>-0       [000] d..2.     1.000410: softirq_exit: vec=3 [action=NET_RX]
          <idle>-0       [001] d..2.     1.000450: sched_wakeup: comm=b pid=40 prio=120 target_cpu=001
             hog-50      [001] d..2.     1.000600: sched_switch: prev_comm=hog prev_pid=50 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=40 next_prio=120
               b-40      [001] d..2.     1.000700: local_timer_entry: vector=236
               b-40      [001] d..2.     1.000710: irq_handler_entry: irq=28 name=virtio4-input.0
               b-40      [001] d..2.     1.000720: irq_handler_exit: irq=28 ret=handled
               b-40      [001] d..2.     1.000750: local_timer_exit: vector=236
               b-40      [001] d..2.     1.000800: sched_switch: prev_comm=b prev_pid=40 prev_prio=120 prev_state=R ==> next_comm=hog next_pid=50 next_prio=120
           <...>-50      [001] d..2.     1.000900: sched_switch: prev_comm=hog prev_pid=50 prev_prio=120 prev_state=S ==> next_comm=b next_pid=40 next_prio=120
          <idle>-0       [000] d..2.     1.000990: sched_waking: comm=b pid=40 prio=120 target_cpu=001
               b-40      [001] d..2.     1.001000: sched_switch: prev_comm=b prev_pid=40 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
          <idle>-0       [000] d..2.     1.001010: sched_wakeup: comm=b pid=40 prio=120 target_cpu=001
          <idle>-0       [001] d..2.     1.001100: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=b next_pid=40 next_prio=120
`

func read(t *testing.T, text string) *Recording {
	t.Helper()
	r, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestThread(t *testing.T) {
	const s, us, end = 1_000_000, 1000, 2_000_000_000
	r := read(t, history)
	waited := func(begin, end uint64) (ns uint64) {
		for _, w := range r.Waits(40, begin, end) {
			ns += w.End - w.Begin
		}
		return ns
	}
	handled := func(begin, end uint64) uint64 { return r.Handled(40, begin, end) }
	onTop := func(begin uint64) uint64 { return r.OnTop(40, begin, end) }
	for _, c := range []struct {
		what      string
		got, want uint64
	}{
		{"waits: woken 200, preempted 100, woken as it left 100", waited(0, end), 400},
		{"waits in a part", waited(us*(s+500), us*(s+850)), 100 + 50},
		{"on top, nested counts once", onTop(0), 50},
		{"on top in a part", onTop(us * (s + 740)), 10},
		{"handler: the innermost that was open, from the line's on that raised it", handled(0, end), 200},
		{"handler after done", handled(us*(s+380), end), 20},
		{"handler of another time", handled(us*(s+500), end), 0},
	} {
		if c.got != us*c.want {
			t.Errorf("%s: %d ns, want %d", c.what, c.got, us*c.want)
		}
	}
	waits := r.Waits(40, 0, end)
	if len(waits) != 3 || !waits[0].Woken || waits[1].Woken || !waits[2].Woken || waits[1].CPU != 1 {
		t.Errorf("waits: %+v", waits)
	}
}

func TestBadInput(t *testing.T) {
	for _, text := range []string{
		"Warning: something",
		"  b-40      [001] d..2.     1.0001: sched_waking: comm=b pid=40 prio=120 target_cpu=001",
		"  b-40      [001] d..2.     1.000100: sched_waking: comm=b prio=120 target_cpu=001",
		"  b-40      [001] d..2.     1.000100: sched_switch: prev_comm=b prev_pid=x next_pid=1",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("taken: %q", text)
		}
	}
}
