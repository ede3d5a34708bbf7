package tracer

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// lossMeter turns the drop counters of the programs into events.
type lossMeter struct {
	seen  [][bpf.RdmaRecordKindRECORD_KINDS]uint64 // by CPU
	until [][bpf.RdmaRecordKindRECORD_KINDS]uint64 // the latest look at which no drop was on its way, ns
	begin uint64                                   // of the trace, ns
	stats []bpf.RdmaStats                          // reused
}

func (m *lossMeter) since(now uint64) { m.begin = now }

// reportLosses emits what was lost since the last call.
func (t *Tracer) reportLosses(sink func(*event.Event) error) error {
	now := monotonic()
	if err := t.readStats(&t.losses.stats); err != nil {
		return err
	}
	return t.losses.report(now, func(e *event.Event) error {
		t.latest = max(t.latest, e.Time)
		return sink(e)
	})
}

// report emits a Loss for every CPU and kind of event that lost some since the
// last call. A program takes the time of its record first, and may be preempted before
// it finds the ring full, and again before it has counted that. So what is counted now
// was dropped after the latest call at which no drop was on its way, and is at most the
// greatest lag older than that: the Loss is of no less time than its records, of more
// where a lag was long once. Records that are no events (stacks, libraries, trials) are
// told of by the counters alone: a Loss of them would cast doubt on events that are all
// there.
func (m *lossMeter) report(now uint64, sink func(*event.Event) error) error {
	if m.seen == nil {
		m.seen = make([][bpf.RdmaRecordKindRECORD_KINDS]uint64, len(m.stats))
		m.until = make([][bpf.RdmaRecordKindRECORD_KINDS]uint64, len(m.stats))
	}
	for cpu := range m.stats {
		for kind := range m.seen[cpu] {
			lost, n := m.stats[cpu].Dropped[kind], m.stats[cpu].Dropped[kind].Count-m.seen[cpu][kind]
			begin := max(m.begin, m.until[cpu][kind])
			begin -= min(begin, lost.Lag)
			m.seen[cpu][kind] = lost.Count
			if lost.Begun == lost.Count {
				m.until[cpu][kind] = now
			}
			if kindOf[kind] == 0 || n == 0 {
				continue
			}
			e := event.Event{
				Time: max(lost.Last, begin), CPU: uint16(cpu), Kind: event.KindLoss,
				Loss: event.Loss{Begin: begin, Count: n, Of: kindOf[kind]},
			}
			if err := sink(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tracer) readStats(into *[]bpf.RdmaStats) error {
	if *into == nil {
		*into = make([]bpf.RdmaStats, t.kernel.cpus)
	}
	if err := t.kernel.coll.Maps[bpf.RdmaMapStats].Lookup(uint32(0), into); err != nil {
		return fmt.Errorf("read the programs' counters: %w", err)
	}
	return nil
}

// counterNames are the words for what the programs count, by enum counter.
var counterNames = [bpf.RdmaCounterCOUNTERS]string{
	bpf.RdmaCounterCOUNT_NO_STORAGE:      "threads without storage",
	bpf.RdmaCounterCOUNT_SWITCH_INFERRED: "switches that the kernel did not tell",
	bpf.RdmaCounterCOUNT_SCHED_UNTRACKED: "waits not followed",
	bpf.RdmaCounterCOUNT_LIST_TRUNCATED:  "posted lists cut",
	bpf.RdmaCounterCOUNT_SGE_TRUNCATED:   "scatter lists cut",
	bpf.RdmaCounterCOUNT_WR_UNREADABLE:   "work requests unreadable",
	bpf.RdmaCounterCOUNT_QP_UNREADABLE:   "objects unreadable",
	bpf.RdmaCounterCOUNT_WC_UNREADABLE:   "completions unreadable",
	bpf.RdmaCounterCOUNT_POLL_TRUNCATED:  "polls cut",
	bpf.RdmaCounterCOUNT_POLL_FAILED:     "polls failed",
	bpf.RdmaCounterCOUNT_SITE_UNFIT:      "hits on a poll's path without a completion",
	bpf.RdmaCounterCOUNT_SITE_MISSED:     "completions beside a poll's path",
	bpf.RdmaCounterCOUNT_CQE_UNFIT:       "completion entries that did not fit",
	bpf.RdmaCounterCOUNT_BUILD_OVERFLOW:  "built work requests cut",
	bpf.RdmaCounterCOUNT_BUILD_STRAY:     "builder calls outside a bracket",
	bpf.RdmaCounterCOUNT_WQE_UNFIT:       "posts whose send queue entries did not fit",
	bpf.RdmaCounterCOUNT_CQ_STATE:        "completion queues without state",
	bpf.RdmaCounterCOUNT_INTERRUPT_DEPTH: "interrupts nested too deep",
	bpf.RdmaCounterCOUNT_SOFTIRQS_OUT:    "switched out softirqs not followed",
	bpf.RdmaCounterCOUNT_INTERRUPT_STRAY: "interrupt ends without begin",
	bpf.RdmaCounterCOUNT_STACK_CUT:       "stacks unreadable",
	bpf.RdmaCounterCOUNT_SITES_FULL:      "calls whose stack was not taken",
	bpf.RdmaCounterCOUNT_WAYS_FULL:       "stacks not taken where too many ways lead",
	bpf.RdmaCounterCOUNT_STACKS_FULL:     "stacks of threads not taken",
	bpf.RdmaCounterCOUNT_TARGETS_FULL:    "child processes not followed",
	bpf.RdmaCounterCOUNT_NO_RING:         "records of a CPU without a ring",
}

// kindNames are the words for kinds of records, for the drop counters.
var kindNames = [bpf.RdmaRecordKindRECORD_KINDS]string{
	bpf.RdmaRecordKindRECORD_WR:             "work request",
	bpf.RdmaRecordKindRECORD_POST_END:       "post end",
	bpf.RdmaRecordKindRECORD_COMPLETION:     "completion",
	bpf.RdmaRecordKindRECORD_ARM:            "arm",
	bpf.RdmaRecordKindRECORD_CQE:            "completion entry",
	bpf.RdmaRecordKindRECORD_CQ_EVENT:       "completion event",
	bpf.RdmaRecordKindRECORD_SWITCH:         "switch",
	bpf.RdmaRecordKindRECORD_MIGRATION:      "migration",
	bpf.RdmaRecordKindRECORD_QUOTA:          "quota",
	bpf.RdmaRecordKindRECORD_WAKING:         "waking",
	bpf.RdmaRecordKindRECORD_SAMPLE:         "sample",
	bpf.RdmaRecordKindRECORD_INTERRUPT:      "interrupt",
	bpf.RdmaRecordKindRECORD_QP:             "queue pair",
	bpf.RdmaRecordKindRECORD_CQ:             "completion queue",
	bpf.RdmaRecordKindRECORD_DEVICE_CONTEXT: "device context",
	bpf.RdmaRecordKindRECORD_TASK:           "task",
	bpf.RdmaRecordKindRECORD_STACK:          "stack",
	bpf.RdmaRecordKindRECORD_LIBRARY:        "library",
	bpf.RdmaRecordKindRECORD_TRIAL_HIT:      "trial hit",
	bpf.RdmaRecordKindRECORD_TRIAL_POLL:     "trial poll",
}

// counters sums what was dropped, missed or unreadable over all CPUs.
func (t *Tracer) counters() []event.Counter {
	out := []event.Counter{{Name: "records not understood", Value: t.undecodable}}
	stats := t.losses.stats
	for kind, name := range kindNames {
		if name == "" {
			continue
		}
		var sum uint64
		for cpu := range stats {
			sum += stats[cpu].Dropped[kind].Count
		}
		out = append(out, event.Counter{Name: "dropped: " + name, Value: sum})
	}
	for i, name := range counterNames {
		var sum uint64
		for cpu := range stats {
			sum += stats[cpu].Counter[i]
		}
		out = append(out, event.Counter{Name: name, Value: sum})
	}
	return out
}
