package locate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A library whose mapping is gone is opened by its path, if that is still the same file.
func TestOpenFileOfUnmapped(t *testing.T) {
	dir := t.TempDir()
	path, fifo := filepath.Join(dir, "lib.so"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(path, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	inode := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	for _, tt := range []struct {
		name  string
		lib   Library
		found bool
	}{
		{"mapped", Library{InRoot: "/elsewhere", Open: path}, true},
		{"unmapped", Library{FileID: FileID{Ino: inode(path)}, InRoot: path}, true},
		{"unmapped and replaced", Library{FileID: FileID{Ino: inode(path) + 1}, InRoot: path}, false},
		{"unmapped and deleted", Library{FileID: FileID{Ino: inode(path)}, InRoot: path, Deleted: true}, false},
		{"no file any more", Library{FileID: FileID{Ino: inode(fifo)}, InRoot: fifo}, false},
		{"of a process that has ended", Library{FileID: FileID{Ino: 1}, InRoot: filepath.Join(dir, "none")}, false},
	} {
		if tt.lib.Open == "" {
			tt.lib.Open = "/proc/self/map_files/1000-2000"
		}
		f, err := tt.lib.OpenFile()
		if tt.found != (err == nil) || !tt.found && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}
