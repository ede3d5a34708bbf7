package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// Where a program was while its completions waited is named by the report and by the
// profile: the function that it computed in, or slept in.
func TestWhereItWasLate(t *testing.T) {
	for _, c := range []struct{ name, job, function, doing string }{
		{"computing", "oracle-poller between=compute ns=200000 every=2", "spin", "ran"},
		{"asleep", "oracle-poller between=sleep ns=1000000 every=2", "sleep_ns", "slept"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := spinning(t, "LAT_NS=4000")
			p := d.job(t, c.job)
			tr := traceFor(t, p.Process.Pid, 4000)
			p.running(t)
			in, all := tr.late(t, c.function, c.doing)
			if all == 0 || in < all*3/4 {
				t.Errorf("%s in %s for %d of %d ns by the profile", c.doing, c.function, in, all)
			}
			text, stderr, code := say(t, "report", tr.file)
			if code != 0 {
				t.Fatalf("report: %s", stderr)
			}
			_, section, found := strings.Cut(text, "WHILE COMPLETIONS WAITED")
			section, _, _ = strings.Cut(section, "\n\n")
			lines := strings.Split(section, "\n")
			i := slices.IndexFunc(lines, func(l string) bool { return strings.HasSuffix(l, "%  "+c.doing) })
			if !found || i < 0 || !strings.Contains(lines[i], c.function+" <") {
				t.Errorf("%s in %s is not the first:\n%s", c.doing, c.function, text)
			}
			t.Logf("%s in %s for %d of %d ns;%s", c.doing, c.function, in, all, section)
		})
	}
}

// late is for how long threads ran, or slept, in a function while completions waited, by
// the profile, and for how long anywhere that is known, ns.
func (got *traced) late(t *testing.T, function, doing string) (in, all int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile")
	if _, stderr, code := say(t, "report", got.file, "--pprof", file); code != 0 {
		t.Fatalf("report: %s", stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	index := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == "late" })
	if index < 0 {
		t.Fatalf("no type late in %v", p.SampleType)
	}
	for _, s := range p.Sample {
		var names []string
		for _, l := range s.Location {
			for _, line := range l.Line {
				names = append(names, line.Function.Name)
			}
		}
		if names[0] != "late: "+doing || slices.Contains(names, "[not sampled]") {
			continue
		}
		all += s.Value[index]
		if slices.Contains(names, function) {
			in += s.Value[index]
		}
	}
	return in, all
}
