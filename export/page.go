package export

import (
	"fmt"
	"io"
	"strings"
)

// page writes text; the first error sticks.
type page struct {
	w      io.Writer
	err    error
	width  int // of sentences, in columns
	room   int // for the rest, which is cut to fit; 0: as much as it takes
	colour bool
}

// fit cuts s to n columns, where there is no room for all.
func (p *page) fit(s string, n int) string {
	if p.room == 0 {
		return s
	}
	return shorten(s, n)
}

// most columns of a name in a sentence; 0: all.
func (p *page) most(n int) int {
	if p.room == 0 {
		return 0
	}
	return n
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *page) line(s string) { p.printf("%s\n", strings.TrimRight(s, " ")) }

// paint wraps s in a colour, or not.
func (p *page) paint(ansi, s string) string {
	if !p.colour || ansi == "" || s == "" {
		return s
	}
	return "\x1b[" + ansi + "m" + s + "\x1b[0m"
}

// heading begins a section; the note beside it says how to read it.
func (p *page) heading(title, note string) {
	p.line("")
	note = p.fit(note, p.room-width(title)-2)
	p.line(p.paint(ansiBold, title) + "  " + p.paint(ansiDim, note))
}

// more says that n things were left out, and what they are together.
func (p *page) more(n int, noun string, together ...string) {
	if n > 0 {
		text := "and " + counted(int64(n), "more "+noun) + " in --json"
		p.prose("  ", ansiDim, strings.Join(append([]string{text}, together...), ": "))
	}
}

// prose wraps words to the page. The first line begins with first, the
// following ones with as many spaces.
func (p *page) prose(first, ansi, text string) {
	indent := strings.Repeat(" ", width(first))
	for i, l := range wrap(text, p.width-width(first), p.room != 0) {
		if i > 0 {
			first = indent
		}
		p.line(first + p.paint(ansi, l))
	}
}

// Wrap cuts text into lines of at most so many columns, between words.
func Wrap(text string, columns int) []string { return wrap(text, columns, false) }

// wrap cuts text into lines of at most n columns, between words; where cut says so,
// longer words too.
func wrap(text string, n int, cut bool) (lines []string) {
	line := ""
	for _, word := range words(text) {
		for cut && width(word) > n {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			r := []rune(word)
			lines, word = append(lines, string(r[:n])), string(r[n:])
		}
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= n:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// words of a text; a number and its unit are one.
func words(text string) (list []string) {
	for _, w := range strings.Fields(text) {
		last := len(list) - 1
		if last >= 0 && isUnit(strings.TrimRight(w, ".,;:)")) && endsInDigit(list[last]) {
			list[last] += " " + w
			continue
		}
		list = append(list, w)
	}
	return list
}

func endsInDigit(s string) bool { return s[len(s)-1] >= '0' && s[len(s)-1] <= '9' }

func isUnit(s string) bool {
	for _, units := range [][]unit{timeUnits, byteUnits, bitUnits, {{name: "%"}}} {
		for _, u := range units {
			if s == u.name {
				return true
			}
		}
	}
	return false
}
