package testenv

import (
	"os"
	"strconv"
	"testing"
)

// Soak is how often or long a test of endurance does what it does: briefly
// among the other tests, and fully, or by a share of that in percent, where
// RDMATRACE_SOAK is set (make soak).
func Soak(t testing.TB, brief, full int) int {
	t.Helper()
	text := os.Getenv("RDMATRACE_SOAK")
	if text == "" {
		return brief
	}
	percent, err := strconv.Atoi(text)
	if err != nil || percent <= 0 {
		t.Fatalf("RDMATRACE_SOAK=%s is no share in percent", text)
	}
	return max(full*percent/100, brief)
}
