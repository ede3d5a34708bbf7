package locate

import (
	"bytes"
	"testing"
)

// TestBuild: copies are one build, what claims another's build-id is not; what is too
// large to be read is what its file is.
func TestBuild(t *testing.T) {
	code := func(n int, last byte) *bytes.Reader { return bytes.NewReader(append(make([]byte, n-1), last)) }
	a, b := FileID{Dev: 1, Ino: 2, BuildID: "ab"}, FileID{Dev: 1, Ino: 3, BuildID: "ab"}
	const large = buildMost + 1
	for _, test := range []struct {
		name string
		x, y Build
		same bool
	}{
		{"a copy", newBuild(a, code(4096, 1)), newBuild(b, code(4096, 1)), true},
		{"another's build-id", newBuild(a, code(4096, 1)), newBuild(b, code(4096, 2)), false},
		{"the largest that is read", newBuild(a, code(buildMost, 1)), newBuild(a, code(buildMost, 2)), false},
		{"one large file", newBuild(a, code(large, 1)), newBuild(a, code(large, 1)), true},
		{"two large files", newBuild(a, code(large, 1)), newBuild(b, code(large, 1)), false},
	} {
		if (test.x == test.y) != test.same {
			t.Errorf("%s: %x, %x", test.name, test.x, test.y)
		}
	}
}
