package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestHelpInColumns: what the flags of a group do begins in one column.
func TestHelpInColumns(t *testing.T) {
	flag := regexp.MustCompile(`^ +(-\w, )?--\S+( \S+)? {3,}`)
	column := 0
	for line := range strings.Lines(help(newFlags(new(options)), "") + help(newFlags(new(options)), "report")) {
		begin := len(flag.FindString(line))
		switch {
		case strings.TrimSpace(line) == "":
			column = 0 // of the next group
		case begin == 0:
		case column == 0:
			column = begin
		case begin != column:
			t.Errorf("begins in column %d, those above in %d: %s", begin, column, line)
		}
	}
}
