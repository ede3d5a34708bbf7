package export

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"github.com/rdmatrace/rdmatrace/attribution"
)

func parsed(t *testing.T, r *attribution.Report) *profile.Profile {
	t.Helper()
	p, err := profile.ParseData([]byte(render(t, Pprof, r)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What consumers of profiles choke on: see google/pprof's proto/profile.proto.
func TestPprofIsSound(t *testing.T) {
	for _, f := range fixtures {
		r := f.make()
		p := parsed(t, r)
		if p.DefaultSampleType != "latency" || p.PeriodType == nil || p.DurationNanos != windowNS(r.Context) {
			t.Errorf("%s: default %q, period %v, duration %d", f.name, p.DefaultSampleType, p.PeriodType, p.DurationNanos)
		}
		for i, m := range p.Mapping {
			if m.ID != uint64(i+1) || !m.HasFunctions || m.File == "" {
				t.Errorf("%s: mapping %d: %v", f.name, i, m)
			}
		}
		for i, l := range p.Location {
			if l.ID != uint64(i+1) || len(l.Line) == 0 {
				t.Errorf("%s: location %d: %v", f.name, i, l)
			}
			if m := l.Mapping; m != nil && m.Limit > 0 && (l.Address < m.Start || l.Address >= m.Limit) {
				t.Errorf("%s: location %#x is outside its mapping %#x-%#x", f.name, l.Address, m.Start, m.Limit)
			}
		}
		for i, fn := range p.Function {
			if fn.ID != uint64(i+1) || fn.Name == "" || !utf8.ValidString(fn.Name) {
				t.Errorf("%s: function %d: %v", f.name, i, fn)
			}
		}
		for _, s := range p.Sample {
			if len(s.Location) == 0 {
				t.Errorf("%s: a sample without a location", f.name)
			}
			var classes int64
			if alone := s.Value[lateIndex] > 0; alone && (s.Value[countIndex] > 0 || s.Value[latencyIndex] > 0) {
				t.Errorf("%s: late beside others: %v", f.name, s.Value)
			}
			for i, v := range s.Value {
				if v < 0 {
					t.Errorf("%s: negative value %d", f.name, v)
				}
				if i >= firstClassIndex && i < lateIndex {
					classes += v
				}
			}
			if classes != s.Value[latencyIndex] {
				t.Errorf("%s: classes %d, latency %d", f.name, classes, s.Value[latencyIndex])
			}
			for key, values := range s.Label {
				if len(values) != 1 || values[0] == "" || clean(values[0]) != values[0] {
					t.Errorf("%s: label %s: %q", f.name, key, values)
				}
			}
		}
	}
}

func TestPprofTotals(t *testing.T) {
	for _, name := range []string{"polling", "eventmode", "training"} {
		r := fixture(t, name)
		var sums [8]int64
		for _, s := range parsed(t, r).Sample {
			for i, v := range s.Value {
				sums[i] += v
			}
		}
		want := [8]int64{r.Latency.Count, r.Latency.TotalNS, r.Classes[attribution.Software].TotalNS, r.Classes[attribution.Interrupt].TotalNS,
			r.Classes[attribution.Scheduling].TotalNS, r.Classes[attribution.Wire].TotalNS, r.Undecided.TotalNS,
			r.Late.RanNS + r.Late.SleptNS + r.Late.WaitedNS}
		if sums != want {
			t.Errorf("%s: sums %v, want %v", name, sums, want)
		}
	}
}

// The profile's size follows its samples, and these are bounded: 512 queue pairs
// with all causes stay far below what viewers choke on.
func TestPprofSize(t *testing.T) {
	r := &attribution.Report{Context: testContext(1, "big", "big")}
	stack := addStack(r.Context, 1, 1, false, "post", "main")
	for qp := range 512 {
		for cause := attribution.Submit; cause <= attribution.Retransmit; cause++ {
			r.Samples = append(r.Samples, attribution.Sample{Stack: stack, PID: 1, Leaf: true, Cause: cause, NS: int64(qp*1000 + 1), Count: 10,
				Labels: attribution.Labels{Op: "WRITE", Size: "4KiB", QP: hex(uint64(qp)), Peer: fmt.Sprintf("lid %d", qp%64), Device: "mlx5_0"}})
		}
	}
	if n := len(render(t, Pprof, r)); n > 1<<20 {
		t.Errorf("%d bytes for %d samples", n, len(r.Samples))
	}
}

// pprofFlags gives the driver its command line.
type pprofFlags struct {
	*pflag.FlagSet
	args []string
}

func (f pprofFlags) StringList(name, def, usage string) *[]*string {
	list := &[]*string{}
	f.FlagSet.Func(name, usage, func(s string) error { *list = append(*list, &s); return nil })
	return list
}
func (f pprofFlags) ExtraUsage() string   { return "" }
func (f pprofFlags) AddExtraUsage(string) {}
func (f pprofFlags) Parse(func()) []string {
	if err := f.FlagSet.Parse(f.args); err != nil {
		return nil
	}
	return f.FlagSet.Args()
}

// pprofUI collects complaints: a good profile gives none.
type pprofUI struct{ complaints []string }

func (u *pprofUI) ReadLine(string) (string, error)     { return "", os.ErrClosed }
func (u *pprofUI) Print(args ...any)                   {}
func (u *pprofUI) PrintErr(args ...any)                { u.complaints = append(u.complaints, fmt.Sprint(args...)) }
func (u *pprofUI) IsTerminal() bool                    { return false }
func (u *pprofUI) WantBrowser() bool                   { return false }
func (u *pprofUI) SetAutoComplete(func(string) string) {}

// runPprof (the driver keeps options of earlier runs: give all) is "go tool pprof args... FILE" on the fixture's profile.
func runPprof(t *testing.T, name string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.pb.gz"), filepath.Join(dir, "out.txt")
	if err := os.WriteFile(in, []byte(render(t, Pprof, fixture(t, name))), 0o644); err != nil {
		t.Fatal(err)
	}
	flags := pprofFlags{pflag.NewFlagSet("pprof", pflag.ContinueOnError), append(args, "--output", out, in)}
	ui := &pprofUI{}
	if err := driver.PProf(&driver.Options{Flagset: flags, UI: ui}); err != nil {
		t.Fatal(err)
	}
	for _, c := range ui.complaints {
		if !strings.HasPrefix(c, "Generating report") {
			t.Errorf("pprof complains: %s", c)
		}
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

func TestPprofTop(t *testing.T) {
	for _, c := range []struct {
		fixture, index string
		lines          []string // regular expressions
	}{
		{"polling", "wire", []string{`File: ib_write_lat`, `Type: wire`, `14\.4.ms\s+100%\s+100%\s+14\.4.ms\s+100%\s+wire\.unsplit`,
			`0\s+0%\s+100%\s+14\.4.ms\s+100%\s+run_iter_lat_write`, `post_send_method \(inline\)`}},
		{"polling", "latency", []string{`Duration: 10s`, `wire\.unsplit`, `stress-ng \(pid 312\)`}},
		{"polling", "count", []string{`4000\s+100%\s+100%\s+4000\s+100%\s+post_send_method`}},
		{"eventmode", "interrupt", []string{`handler: NET_RX softirq`, `handler: virtio3-input\.0 \(irq 27\)`, `interrupt\.delivery`}},
		{"training", "wire", []string{`c10d::ProcessGroupMPI::runLoop`, `wire\.transmit`, `wire\.base`}},
	} {
		top := runPprof(t, c.fixture, "--top", "--sample_index", c.index)
		for _, want := range c.lines {
			if !regexp.MustCompile(want).MatchString(top) {
				t.Errorf("%s by %s: no %q in\n%s", c.fixture, c.index, want, top)
			}
		}
	}
}

func TestPprofTagsAndTraces(t *testing.T) {
	tags := runPprof(t, "training", "--tags", "--sample_index", "latency")
	for _, key := range []string{"op", "size", "qp", "peer", "device", "transport", "post_thread", "reap_thread", "done_source", "demand"} {
		if !strings.Contains(tags, key+": Total") {
			t.Errorf("no tag %q in\n%s", key, tags)
		}
	}
	traces := runPprof(t, "eventmode", "--traces", "--sample_index", "scheduling")
	want := `runqueue: stress-ng \(pid 990\)\n\s+scheduling\.runqueue\n\s+scheduling\n\s+pp_post_send\n\s+main\n\s+\[stack incomplete\]`
	if !regexp.MustCompile(want).MatchString(traces) {
		t.Errorf("no %q in\n%s", want, traces)
	}
}

// The driver also survives a profile full of hostile names.
func TestPprofHostile(t *testing.T) {
	if top := runPprof(t, "hostile", "--top", "--sample_index", "latency"); !strings.Contains(top, "runq wait 905 3000") {
		t.Errorf("names are lost:\n%s", top)
	}
	runPprof(t, "hostile", "--dot", "--sample_index", "latency")
}
