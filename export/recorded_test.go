package export

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
)

// recorded is a capture file of a real run: testdata/recorded/README.md says of which.
type recorded struct {
	name        string // without its ending
	first, last *event.Context
	events      []event.Event
}

func readRecorded(t testing.TB) (all []recorded) {
	t.Helper()
	files, err := filepath.Glob("testdata/recorded/*.rdt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in, err := capture.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		r := recorded{name: name[:len(name)-len(".rdt")], first: in.Context()}
		for {
			var e event.Event
			if err := in.Next(&e); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			r.events = append(r.events, e)
		}
		if r.last = in.Context(); r.last == nil || in.Cut() {
			t.Fatalf("%s is cut off", file)
		}
		all = append(all, r)
	}
	return all
}

func (r *recorded) engine() *attribution.Engine {
	return attribution.New(attribution.Config{Devices: r.first.Devices, Cost: r.first.Cost, Arch: r.first.Host.Arch})
}

func (r *recorded) report(events []event.Event) *attribution.Report {
	engine := r.engine()
	for i := range events {
		engine.Add(&events[i])
	}
	return engine.Finish(r.last)
}

// BenchmarkRecorded analyses a real run from its first record to the report: floors,
// clocks and tables are empty at the beginning, so unlike in a long run some records
// cost an allocation (attribution has the benchmark of the steady state).
func BenchmarkRecorded(b *testing.B) {
	for _, r := range readRecorded(b) {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.report(r.events)
			}
			n := float64(len(r.events))
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
			b.ReportMetric(n, "events")
		})
	}
}

// What is said of real runs is in testdata/recorded.
func TestRecorded(t *testing.T) {
	for _, r := range readRecorded(t) {
		for _, ending := range []string{"txt", "folded"} {
			t.Run(r.name+"."+ending, func(t *testing.T) {
				golden(t, filepath.Join("recorded", r.name+"."+ending), []byte(render(t, writers[ending], r.report(r.events))))
			})
		}
	}
}

// Real runs are reported the same, byte for byte, in any order inside the
// watermark: the reverse, and at random.
func TestRecordedInHostileOrder(t *testing.T) {
	for _, r := range readRecorded(t) {
		want := render(t, JSON, r.report(r.events))
		rng := rand.New(rand.NewPCG(1, uint64(len(r.events))))
		for name, late := range map[string]func(*event.Event) uint64{
			"by time": func(*event.Event) uint64 { return 0 },
			"in reverse": func(e *event.Event) uint64 {
				return attribution.DefaultWatermark - 1 - e.Time%(attribution.DefaultWatermark/2)*2
			},
			"at random": func(*event.Event) uint64 { return rng.Uint64N(attribution.DefaultWatermark) },
		} {
			t.Run(r.name+", "+name, func(t *testing.T) {
				if got := render(t, JSON, r.report(arrive(r.events, late))); got != want {
					t.Error("the report depends on the order of arrival")
				}
			})
		}
	}
}

// arrive puts events into the order of arrival, each so late.
func arrive(events []event.Event, late func(*event.Event) uint64) []event.Event {
	type arrival struct {
		at uint64
		e  event.Event
	}
	all := make([]arrival, 0, len(events))
	for i := range events {
		all = append(all, arrival{events[i].Time + late(&events[i]), events[i]})
	}
	slices.SortStableFunc(all, func(a, b arrival) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	out := make([]event.Event, 0, len(all))
	for _, a := range all {
		out = append(out, a.e)
	}
	return out
}
