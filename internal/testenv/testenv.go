// Package testenv says what tests may expect of the machine they run on.
package testenv

import (
	"os"
	"testing"
)

// CI reports whether this is a run that has to have everything: there, what is
// missing is a failure.
func CI() bool { return os.Getenv("CI") != "" }

// Missing skips a test for want of something that a developer's machine may
// lack. On CI it fails it instead.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if CI() {
		t.Fatalf("missing on CI: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Root skips a test that needs root, where there is none.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root")
	}
}
