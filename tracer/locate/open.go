package locate

import (
	"errors"
	"os"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// OpenFile opens the library's file. Where the mapping that leads to it is gone, as of a
// plugin that is unloaded and loaded again, its path does, while that is of the same
// file: probes are put into a file, wherever it is mapped next.
func (l *Library) OpenFile() (*os.File, error) {
	f, err := os.Open(l.Open)
	if l.Deleted || !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if g, err := image.OpenRegular(l.InRoot, l.Ino); err == nil {
		return g, nil
	}
	return nil, err
}
