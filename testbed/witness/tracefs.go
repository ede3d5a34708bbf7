package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// tracepoints are recorded.
var tracepoints = slices.Concat([]string{
	"sched/sched_switch", "sched/sched_waking", "sched/sched_wakeup",
	"irq/irq_handler_entry", "irq/irq_handler_exit", "irq/softirq_raise", "irq/softirq_entry", "irq/softirq_exit",
}, vectors[runtime.GOARCH])

// vectors are the interrupts that are no device's and begin and end in tracepoints of
// their own. On arm64 the timer is a line, and what an IPI does is within its line.
var vectors = map[string][]string{
	"amd64": {
		"irq_vectors/local_timer_entry", "irq_vectors/local_timer_exit",
		"irq_vectors/reschedule_entry", "irq_vectors/reschedule_exit",
		"irq_vectors/call_function_entry", "irq_vectors/call_function_exit",
		"irq_vectors/call_function_single_entry", "irq_vectors/call_function_single_exit",
		"irq_vectors/irq_work_entry", "irq_vectors/irq_work_exit",
	},
	"arm64": {"ipi/ipi_entry", "ipi/ipi_exit"},
}

// kilobytes of each CPU's buffer.
const kilobytes = "16384"

// Recorder is an instance of the kernel's tracer, on a machine whose tracefs is
// mounted.
type Recorder struct{ dir string }

// Place puts a recorder on its tracepoints, where it records nothing yet. Of the
// scheduler it will record what concerns the given threads.
func Place(name string, tids ...int) (*Recorder, error) {
	r := &Recorder{filepath.Join("/sys/kernel/tracing/instances", name)}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make an instance of the kernel's tracer: %w", err)
	}
	settings := [][2]string{
		{"tracing_on", "0"}, {"trace_clock", "mono"}, {"buffer_size_kb", kilobytes},
		{"events/sched/sched_switch/filter", anyOf(tids, "prev_pid", "next_pid")},
		{"events/sched/sched_waking/filter", anyOf(tids, "pid")},
		{"events/sched/sched_wakeup/filter", anyOf(tids, "pid")},
	}
	for _, tp := range tracepoints {
		settings = append(settings, [2]string{"events/" + tp + "/enable", "1"})
	}
	for _, s := range settings {
		if err := r.set(s[0], s[1]); err != nil {
			return nil, errors.Join(err, r.Remove())
		}
	}
	return r, nil
}

// anyOf is a filter for events that have one of the threads in a field.
func anyOf(tids []int, fields ...string) string {
	var terms []string
	for _, tid := range tids {
		for _, field := range fields {
			terms = append(terms, fmt.Sprintf("%s == %d", field, tid))
		}
	}
	return strings.Join(terms, " || ")
}

func (r *Recorder) set(file, value string) error {
	if err := os.WriteFile(filepath.Join(r.dir, file), []byte(value), 0); err != nil {
		return fmt.Errorf("set up the kernel's tracer: %w", err)
	}
	return nil
}

// Record begins.
func (r *Recorder) Record() error { return r.set("tracing_on", "1") }

// Stop ends the recording.
func (r *Recorder) Stop() error { return r.set("tracing_on", "0") }

// Text gives what was recorded until it was stopped. That a record is missing is an
// error.
func (r *Recorder) Text() (string, error) {
	stats, err := filepath.Glob(filepath.Join(r.dir, "per_cpu", "cpu*", "stats"))
	if err != nil || len(stats) == 0 {
		return "", fmt.Errorf("the kernel's tracer has no CPUs: %v", err)
	}
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("ask the kernel's tracer for losses: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			what, n, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if (strings.Contains(what, "overrun") || what == "dropped events") && n != "0" {
				return "", fmt.Errorf("the kernel's tracer lost records: %s %s in %s", what, n, file)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(r.dir, "trace"))
	if err != nil {
		return "", fmt.Errorf("read what the kernel's tracer recorded: %w", err)
	}
	return string(b), nil
}

// Remove takes the recorder off.
func (r *Recorder) Remove() error {
	if err := os.Remove(r.dir); err != nil {
		return fmt.Errorf("remove the instance of the kernel's tracer: %w", err)
	}
	return nil
}
