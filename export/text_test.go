package export

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
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
			text := b.String()
			if o.Colour != ansi.MatchString(text) {
				t.Errorf("%s %+v: colour present: %v", f.name, o, !o.Colour)
			}
			for i, line := range strings.Split(ansi.ReplaceAllString(text, ""), "\n") {
				if n := utf8.RuneCountInString(line); n > limit {
					t.Errorf("%s %+v line %d has %d columns: %q", f.name, o, i+1, n, line)
				}
				if strings.HasSuffix(line, " ") {
					t.Errorf("%s %+v line %d ends in blanks: %q", f.name, o, i+1, line)
				}
				for _, r := range line {
					if !unicode.IsPrint(r) {
						t.Errorf("%s %+v line %d has %U: %q", f.name, o, i+1, r, line)
						break
					}
				}
			}
		}
	}
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
