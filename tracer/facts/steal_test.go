package facts

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSteal(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"cpu  100 0 50 900 1 2 3 123 0 0\ncpu0 1 2 3 4 5 6 7 8 9 9\n": 1230 * time.Millisecond,
		"cpu  100 0 50 900 1 2 3 0 0 0\n":                             0,
		"cpu  100 0 50 900\n":                                         0, // before 2.6.11
		"cpu  100 0 50 900 1 2 3 18446744073709551615 0 0\n":          0,
		"":             0,
		"intr 1 2 3\n": 0,
	} {
		if got := steal(filepath.Join(plant(t, map[string]string{"stat": text}), "stat")); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := steal("/nonexistent"); got != 0 {
		t.Errorf("without the file: %v", got)
	}
}

func TestStealNote(t *testing.T) {
	for _, c := range []struct {
		stolen time.Duration
		want   string
	}{
		{0, ""}, {-time.Second, ""}, {190 * time.Millisecond, ""}, {200 * time.Millisecond, "for 200ms of 20s (steal time, 2 CPUs"},
	} {
		if got := StealNote(c.stolen, 10*time.Second, 2); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q", c.stolen, got)
		}
	}
}
