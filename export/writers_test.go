package export

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// writers of the package by the ending of their goldens.
var writers = map[string]func(io.Writer, *attribution.Report) error{
	"txt":    func(w io.Writer, r *attribution.Report) error { return Text(w, r, TextOptions{}) },
	"json":   JSON,
	"pprof":  Pprof,
	"folded": Folded,
	"svg":    func(w io.Writer, r *attribution.Report) error { return Flamegraph(w, r, FlameOptions{}) },
}

// fixture by its name.
func fixture(t *testing.T, name string) *attribution.Report {
	t.Helper()
	for _, f := range fixtures {
		if f.name == name {
			return f.make()
		}
	}
	t.Fatalf("no fixture %q", name)
	return nil
}

func render(t *testing.T, write func(io.Writer, *attribution.Report) error, r *attribution.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// golden compares got with testdata/name, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the test with -update)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got; -update accepts):\n%s", file, diff)
	}
}

// The text of every fixture is in testdata, the other outputs of those in
// which they differ. A profile is kept as the text that its package makes of it.
func TestGolden(t *testing.T) {
	for _, f := range fixtures {
		for ending, write := range writers {
			if ending != "txt" && !strings.Contains(f.others, ending) {
				continue
			}
			t.Run(f.name+"."+ending, func(t *testing.T) {
				got := render(t, write, f.make())
				if ending == "pprof" {
					p, err := profile.ParseData([]byte(got))
					if err != nil {
						t.Fatal(err)
					}
					got = p.String()
				}
				golden(t, f.name+"."+ending, []byte(got))
			})
		}
	}
}

// The same report gives the same bytes, whoever wrote it before.
func TestDeterministic(t *testing.T) {
	for _, f := range fixtures {
		r, first := f.make(), map[string]string{}
		for ending, write := range writers {
			first[ending] = render(t, write, r)
		}
		for ending, write := range writers {
			if render(t, write, r) != first[ending] {
				t.Errorf("%s.%s differs from run to run", f.name, ending)
			}
		}
	}
}

// broken accepts some bytes and then fails.
type broken struct{ room int }

func (b *broken) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, os.ErrClosed
	}
	return len(p), nil
}

// An error of the writer is never swallowed, wherever it strikes.
func TestWriteErrors(t *testing.T) {
	r := fixtures[0].make()
	for ending, write := range writers {
		all := len(render(t, write, r))
		for _, room := range []int{0, 1, all / 2, all - 1} {
			if err := write(&broken{room}, r); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: the error after %d of %d bytes is lost: %v", ending, room, all, err)
			}
		}
		if err := write(&broken{all}, r); err != nil {
			t.Errorf("%s: %v", ending, err)
		}
	}
}

// A report that holds nothing at all is legal.
func TestEmptyReport(t *testing.T) {
	for ending, write := range writers {
		out := render(t, write, &attribution.Report{})
		if ending != "folded" && out == "" {
			t.Errorf("%s: nothing written", ending)
		}
	}
}
