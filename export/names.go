package export

import (
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rdmatrace/rdmatrace/event"
)

// maxName bounds every name. C++ symbols reach tens of kilobytes, and a
// profile repeats them.
const maxName = 400

// clean makes a string of the target safe for terminals, XML, protobuf and
// people: valid UTF-8 (a comm of 15 bytes may end inside a rune), no control,
// bidirectional or other invisible character, of bounded length.
func clean(s string) string { return cleanUpTo(maxName, s) }

// maxText bounds sentences that quote names.
const maxText = 2000

func cleanText(s string) string { return cleanUpTo(maxText, s) }

func cleanUpTo(most int, s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	r := []rune(s)
	tail := most / 3
	return string(r[:most-tail-3]) + "..." + string(r[len(r)-tail:])
}

// cleanOr is clean(s), or what stands for an empty name.
func cleanOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return clean(s)
}

// width of s on a terminal, taking each rune as one column.
func width(s string) int { return utf8.RuneCountInString(s) }

// shorten cuts s to at most n columns.
func shorten(s string, n int) string {
	if width(s) <= n {
		return s
	}
	r := []rune(s)
	if n <= 3 {
		return string(r[:max(n, 0)])
	}
	return string(r[:n-3]) + "..."
}

// frameName is what a user frame is called: its function, else its place.
func frameName(f event.Frame) string {
	switch {
	case f.Func == "" && f.Module == uprobesArea:
		return steppedProbe
	case f.Func != "":
		return clean(f.Func)
	case f.Module != "":
		return clean(path.Base(f.Module)) + "+" + hex(f.Offset)
	case f.Addr != 0:
		return hex(f.Addr)
	}
	return "[unknown]"
}

// uprobesArea is the mapping in which a thread executes its copy of a probed
// instruction that the kernel single-steps: what it runs there is the tracer's cost.
const uprobesArea, steppedProbe = "[uprobes]", "[in a single-stepped probe]"

// numberAtEnd is how flamegraph.pl finds the value, and a second one for
// differential graphs: white space and digits at the end.
var numberAtEnd = regexp.MustCompile(`\s+(\d+(\.\d*)?)$`)

// foldable makes a frame name safe for folded stacks, which have no escapes:
// no separator inside, and no number at the end that would be taken as a value.
func foldable(name string) string {
	name = strings.TrimSpace(strings.ReplaceAll(name, ";", ":"))
	if name == "" {
		return "[unknown]"
	}
	return numberAtEnd.ReplaceAllString(name, "_$1")
}
