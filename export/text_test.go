package export

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTextFitsAndIsSafe(t *testing.T) {
	for _, f := range fixtures {
		for _, o := range []TextOptions{{}, {Width: 100}, {Width: 100, Colour: true}, {Width: 200}, {Width: 5000}, {Width: -1, Colour: true}} {
			var b bytes.Buffer
			if err := Text(&b, f.make(), o); err != nil {
				t.Fatal(err)
			}
			limit := max(o.Width, minWidth)
			if o.Width == 0 {
				limit = math.MaxInt
			}
			if o.Colour != ansi.MatchString(b.String()) {
				t.Errorf("%s %+v: colour present: %v", f.name, o, !o.Colour)
			}
			for _, fault := range lineFaults(b.String(), limit) {
				t.Errorf("%s %+v: %s", f.name, o, fault)
			}
		}
	}
}

// lineFaults finds lines that are too long, end in blanks or hold what a
// terminal would act on.
func lineFaults(text string, limit int) (faults []string) {
	for _, line := range strings.Split(ansi.ReplaceAllString(text, ""), "\n") {
		if n := utf8.RuneCountInString(line); n > limit {
			faults = append(faults, fmt.Sprintf("%d columns: %q", n, line))
		}
		if strings.HasSuffix(line, " ") {
			faults = append(faults, fmt.Sprintf("blanks at the end: %q", line))
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			faults = append(faults, fmt.Sprintf("unprintable: %q", line))
		}
	}
	return faults
}

// Headings say all of it: a title's note is never cut.
func TestHeadingsFit(t *testing.T) {
	for _, f := range fixtures {
		for _, line := range strings.Split(render(t, writers["txt"], f.make()), "\n") {
			title, note, _ := strings.Cut(line, "  ")
			if title != "" && title == strings.ToUpper(title) && strings.HasSuffix(note, "...") {
				t.Errorf("%s: heading is cut: %q", f.name, line)
			}
		}
	}
}

// Children that end at once leave nothing but their numbers.
func TestTargetsWithoutNames(t *testing.T) {
	c := testContext(1, "job")
	for pid := range uint32(10) {
		c.Targets = append(c.Targets, event.Target{PID: 100 + pid, Rank: -1, Exited: true})
	}
	var b bytes.Buffer
	if err := Text(&b, (&builder{}).report(c), TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"target   job, pid 1\n", "target   unknown, pid 100, ended", "  and 7 more processes\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
}

// Shares add up: what those have that are not listed is said, and what nobody has.
func TestCulpritsAddUp(t *testing.T) {
	who := func(name string, ns int64) attribution.Culprit { return attribution.Culprit{Name: name, TotalNS: ns} }
	for _, c := range []struct {
		who  []attribution.Culprit
		want string
	}{
		{nil, ""},
		{[]attribution.Culprit{who("a", 700), who("b", 300)}, "a 70 %, b 30 %"},
		{[]attribution.Culprit{who("a", 700), who("b", 200)}, "a 70 %, b 20 %, not known 10 %"},
		{[]attribution.Culprit{who("a", 500), who("b", 200), who("c", 150), who("d", 90), who("e", 60)}, "a 50 %, b 20 %, c 15 %, others 15 %"},
		{[]attribution.Culprit{who("a", 500), who(otherCulprits, 300)}, "a 50 %, others 30 %, not known 20 %"},
		{[]attribution.Culprit{who(otherCulprits, 1000)}, "others 100 %"},
	} {
		if got := culpritList(&page{}, c.who, 1000, 3); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// What has no row of its own is in the last one.
func TestLateAddsUp(t *testing.T) {
	r := fixture(t, "eventmode")
	var share float64
	_, table, _ := strings.Cut(render(t, writers["txt"], r), "WHILE COMPLETIONS WAITED")
	for _, line := range strings.Split(table, "\n")[2:] {
		m := regexp.MustCompile(`([0-9.]+) %`).FindStringSubmatch(line)
		if m == nil || strings.Contains(line, "each nanosecond") {
			break
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		share += v
	}
	if share < 98 || share > 102 {
		t.Errorf("the shares add up to %v %%:\n%s", share, table[:min(len(table), 1500)])
	}
	for _, want := range []string{"more call stacks, in --json)", "(no call stack is known)"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// What is said of costs, and why a cause has its name, is no doubt.
func TestDoubtsAreDoubts(t *testing.T) {
	r := *fixture(t, "polling")
	r.Evidence = []string{"Wire time above the floor is called rnr because of a counter."}
	text := render(t, writers["txt"], &r)
	section := func(title string) string {
		_, after, found := strings.Cut(text, "\n"+title)
		if !found {
			t.Fatalf("no section %s:\n%s", title, text)
		}
		body, _, _ := strings.Cut(after, "\n\n")
		return strings.Join(strings.Fields(body), " ")
	}
	for title, want := range map[string]string{
		"COST OF OBSERVING": "empty polls cost nothing",
		"CAUSES":            "is called rnr because",
		"DOUBTS":            "probed at entry and return",
	} {
		if !strings.Contains(section(title), want) {
			t.Errorf("%q is not in %s: %s", want, title, section(title))
		}
	}
	for _, good := range []string{"cost nothing", "called rnr"} {
		if strings.Contains(section("DOUBTS"), good) {
			t.Errorf("%q is a doubt: %s", good, section("DOUBTS"))
		}
	}
}

// In a file all is there, on a terminal as much as fits.
func TestNothingIsCutInAFile(t *testing.T) {
	for _, f := range fixtures {
		if strings.Contains(f.name, "hostile") || strings.Contains(f.name, "huge") {
			continue // their names are longer than any that is kept
		}
		if text := render(t, writers["txt"], f.make()); strings.Contains(text, "...") {
			t.Errorf("%s is cut:\n%s", f.name, text)
		}
	}
	var b bytes.Buffer
	if err := Text(&b, fixture(t, "training"), TextOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "--bucket-cap-mb 25...\n") {
		t.Errorf("the command is not cut:\n%s", b.String())
	}
}

// Rows of two processes that do the same are told apart.
func TestProcessesAreToldApart(t *testing.T) {
	c := testContext(1, "job", "job")
	c.Targets = append(c.Targets, event.Target{PID: 2, Comm: "job", Rank: -1})
	b := &builder{}
	for pid := uint32(1); pid <= 2; pid++ {
		stack := addStack(c, pid, 1, false, "post_send", "main")
		b.add(attribution.WR{PID: pid, QPNum: 0x100, Op: "SEND", Device: "mlx5_0", PostBegin: origin, Stack: stack, PostThread: fmt.Sprintf("job/%d", pid)},
			part{attribution.Submit, 1000, ""}, part{attribution.LatePoll, 50_000, ""})
		b.incident(int(pid-1), attribution.LatePoll, 1, 50_000)
		b.r.Receive = append(b.r.Receive, attribution.PeerWait{PID: pid, Device: "mlx5_0", Peer: "lid 1", QPNum: 0x100, Wait: distribution([]int64{1000})})
	}
	r := b.report(c)
	r.Late = lateOf(50_000, attribution.LateStack{PID: 1, Stack: 1, Doing: attribution.Ran, NS: 50_000, Samples: 1},
		attribution.LateStack{PID: 2, Stack: 1, Doing: attribution.Ran, NS: 50_000, Samples: 1})
	text := render(t, writers["txt"], r)
	for _, of := range []string{"  pid %d: post_send < main", "qp 0x100 of pid %d", "lid 1  0x100 of pid %d"} {
		for pid := 1; pid <= 2; pid++ {
			if want := fmt.Sprintf(of, pid); !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
	}
	if n := strings.Count(text, "pid 1: post_send < main"); n != 2 {
		t.Errorf("%d rows, of sites and of where it was late:\n%s", n, text)
	}
}

// What a port moved is not put down to others alone where records of ours were lost.
func TestPortsWhereRecordsWereLost(t *testing.T) {
	port := attribution.PortReport{TracedSent: 27_000_000, PortSent: 41_700_000, PortRecv: 0}
	for lost, want := range map[int64]string{
		0:       "14.7 MB were sent that no traced work request explains: READs of the peers, ",
		12:      "14.7 MB were sent that no traced work request explains: READs of the peers, ",
		185_737: "14.7 MB were sent that no traced work request explains: 185,737 work requests whose records were lost, READs of the peers, ",
	} {
		if got := portRemark(port, attribution.Books{Posted: 653_635, Lost: lost}); !strings.HasPrefix(got, want) {
			t.Errorf("%d lost: %q", lost, got)
		}
	}
}

// Two figures mean less than they seem to: traps of the learning count for each work
// request of a short trace, and posts whose records were lost are no queue pair's.
func TestWhatFiguresHold(t *testing.T) {
	r := *fixture(t, "polling")
	c := *r.Context
	c.Probes = slices.Clone(c.Probes)
	r.Context = &c
	text := func() string { return strings.Join(strings.Fields(render(t, writers["txt"], &r)), " ") }
	for _, not := range []string{"after learning", "no record arrived"} {
		if strings.Contains(text(), not) {
			t.Errorf("%q is said of a run without", not)
		}
	}
	c.Probes = append(c.Probes, event.Probe{Name: "poll_cq", Kind: "uprobe", Hits: 5 * uint64(r.Latency.Count), Removed: true})
	r.Kinds = maps.Clone(r.Kinds)
	b := r.Kinds["send"]
	b.Posted, b.Lost = b.Posted+3, b.Lost+3
	r.Kinds["send"] = b
	for _, want := range []string{"of which 5.0 at probes that were taken out after learning", "3 more posts to send queues, of which no record arrived"} {
		if !strings.Contains(text(), want) {
			t.Errorf("%q is not in: %s", want, text())
		}
	}
}
