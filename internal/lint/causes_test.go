package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// TestCausesAreExplained: the table of causes has each that a report can name, and no other.
func TestCausesAreExplained(t *testing.T) {
	const name = "docs/causes.md"
	page, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	var explained []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 { // cause, meaning, what to do, and both ends
			if key := strings.TrimSpace(cells[1]); strings.HasPrefix(key, "`") {
				explained = append(explained, strings.Trim(key, "`"))
			}
		}
	}
	var known []string
	for c := attribution.Cause(0); c.String() != "invalid"; c++ {
		known = append(known, c.FullName())
	}
	for _, c := range known {
		if !slices.Contains(explained, c) {
			t.Errorf("%s has nothing on %s", name, c)
		}
	}
	for _, c := range explained {
		if !slices.Contains(known, c) {
			t.Errorf("%s explains %s, which no report names", name, c)
		}
	}
	for d := attribution.Unproven; d <= attribution.Dependent; d++ {
		if !strings.Contains(string(page), "`"+d.String()+"`") {
			t.Errorf("%s has nothing on %s", name, d)
		}
	}
	for d := attribution.DoneUnknown; d <= attribution.DoneBounded; d++ {
		if !strings.Contains(string(page), "`"+d.String()+"`") {
			t.Errorf("%s has nothing on %s", name, d)
		}
	}
}
