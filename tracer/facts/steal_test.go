package facts

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

func TestSteal(t *testing.T) {
	for text, want := range map[string]StolenTime{
		"cpu  100 0 50 900 1 2 3 124 0 0\ncpu0 1 2 3 4 5 6 7 1 9 9\ncpu12 1 2 3 4 5 6 7 123 9 9\nintr 5 1 2 3 4 5 6 7 8\ncpu3 1 2 3 4 5 6 7 8\n": {0: 10 * ms, 12: 1230 * ms},
		"cpu  100 0 50 900\ncpu0 100 0 50 900\n":                    {}, // before 2.6.11
		"cpu  1 2 3\ncpu0 1 2 3 4 5 6 7 18446744073709551615 0 0\n": {},
		"":             {},
		"intr 1 2 3\n": {},
	} {
		got := steal(filepath.Join(plant(t, map[string]string{"stat": text}), "stat"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	if got := steal("/nonexistent"); len(got) != 0 {
		t.Errorf("without the file: %v", got)
	}
}

// TestStealNote: one CPU of many that is stolen is worth a note.
func TestStealNote(t *testing.T) {
	wide := func(change StolenTime) (before, after StolenTime) {
		before, after = StolenTime{}, StolenTime{}
		for cpu := range 128 {
			before[cpu] = time.Hour + time.Duration(cpu)*stealTick
			after[cpu] = before[cpu] + change[cpu]
		}
		return before, after
	}
	const end = " (steal time): nothing here sees when, so it is in whatever ran then"
	for name, c := range map[string]struct {
		change StolenTime
		window time.Duration
		want   string
	}{
		"nothing":            {nil, 10 * time.Second, ""},
		"little":             {StolenTime{5: 90 * ms, 6: 90 * ms}, 10 * time.Second, ""},
		"backwards":          {StolenTime{5: -time.Second}, 10 * time.Second, ""},
		"one":                {StolenTime{5: 3 * time.Second, 6: 90 * ms}, 10 * time.Second, "the hypervisor took CPU 5 of this virtual machine for 3s of 10s" + end},
		"a tick":             {StolenTime{5: 10 * ms}, 500 * ms, ""},
		"more than a tick":   {StolenTime{5: 20 * ms}, 500 * ms, "the hypervisor took CPU 5 of this virtual machine for 20ms of 500ms" + end},
		"appeared meanwhile": {StolenTime{500: time.Hour}, 500 * ms, ""},
		"several": {StolenTime{9: 300 * ms, 7: 300 * ms, 100: 200 * ms, 101: 50 * ms}, 10 * time.Second,
			"the hypervisor took CPU 7 of this virtual machine for 300ms of 10s (steal time), and 2 others for more than 1 % of it, 800ms in all: " +
				"nothing here sees when, so it is in whatever ran then"},
		"two": {StolenTime{7: 300 * ms, 100: 200 * ms}, 10 * time.Second,
			"the hypervisor took CPU 7 of this virtual machine for 300ms of 10s (steal time), and 1 other for more than 1 % of it, 500ms in all: " +
				"nothing here sees when, so it is in whatever ran then"},
	} {
		before, after := wide(c.change)
		for cpu, d := range c.change {
			if _, known := before[cpu]; !known {
				after[cpu] = d
			}
		}
		if got := after.Since(before).Note(c.window); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
