package export

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rdmatrace/rdmatrace/event"
)

var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTextFitsAndIsSafe(t *testing.T) {
	for _, f := range fixtures {
		for _, o := range []TextOptions{{}, {Width: 100}, {Width: 100, Colour: true}, {Width: 5000}, {Width: -1, Colour: true}} {
			var b bytes.Buffer
			if err := Text(&b, f.make(), o); err != nil {
				t.Fatal(err)
			}
			limit := min(max(o.Width, minWidth), maxWidth)
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
