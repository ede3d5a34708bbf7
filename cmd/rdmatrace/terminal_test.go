package main

import (
	"io"
	"testing"

	"github.com/rdmatrace/rdmatrace/export"
)

// What is no terminal gets all, unless COLUMNS says how wide it may be.
func TestWidth(t *testing.T) {
	for columns, want := range map[string]int{"": 0, "132": 132, "0": 0, "-3": 0, "wide": 0} {
		t.Setenv("COLUMNS", columns)
		if got := textOptions(io.Discard); got != (export.TextOptions{Width: want}) {
			t.Errorf("COLUMNS=%q: %+v", columns, got)
		}
	}
}
