package lint

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// skipped directories hold nothing that is written here by hand.
var skipped = map[string]bool{".git": true, "bin": true, "build": true, "bpf/headers": true}

// generated reports whether a tool wrote the file.
func generated(path string, content []byte) bool {
	head := content[:min(len(content), 512)]
	return bytes.Contains(head, []byte("Code generated ")) || filepath.Base(path) == "go.sum" ||
		strings.Contains(path, "/testdata/") && !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".c")
}

// texts calls f for every text file of the project that is written by hand.
func texts(t *testing.T, f func(path string, content []byte)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped[rel] || skipped[d.Name()] {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(content[:min(len(content), 8192)], 0) >= 0 || generated(rel, content) {
			return nil
		}
		seen++
		f(rel, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("%d files found: the walk does not see the project", seen)
	}
}
