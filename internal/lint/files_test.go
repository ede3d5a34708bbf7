package lint

import (
	"bytes"
	"go/format"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines of a file: one subject each.
const maxLines = 500

func TestFiles(t *testing.T) {
	texts(t, func(path string, content []byte) {
		if n := bytes.Count(content, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: what are its subjects?", path, n, maxLines)
		}
		if i := strings.IndexAny(string(content), "\u2013\u2014\u2018\u2019\u201c\u201d"); i >= 0 {
			line := 1 + bytes.Count(content[:i], []byte("\n"))
			t.Errorf("%s:%d: dashes and quotes are ASCII here", path, line)
		}
		if len(content) > 0 && content[len(content)-1] != '\n' {
			t.Errorf("%s does not end with a line end", path)
		}
		if filepath.Ext(path) == ".go" {
			if formatted, err := format.Source(content); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if !bytes.Equal(formatted, content) {
				t.Errorf("%s is not formatted: make fmt", path)
			}
		}
	})
}
