package capture

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// TestLargeContextKeepsTheFile: more stacks than a context may hold cost stacks,
// and the reader is told, but not the capture.
func TestLargeContextKeepsTheFile(t *testing.T) {
	ctx := &event.Context{Tool: "test", Notes: []string{"one"}}
	long := strings.Repeat("f", 1<<16)
	for i := range 1000 {
		ctx.Stacks = append(ctx.Stacks, event.Stack{ID: uint64(i + 1), Frames: []event.Frame{{Func: long}}})
	}
	var file bytes.Buffer
	w, err := NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&event.Event{Time: 1, Kind: event.KindArm}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	var e event.Event
	if err := r.Next(&e); err != nil {
		t.Error(err)
	}
	if err := r.Next(&e); err != io.EOF || r.Cut() {
		t.Errorf("%v, cut %v", err, r.Cut())
	}
	got := r.Context()
	if len(got.Stacks) != 500 || len(got.Notes) != 2 || got.Notes[1] != "500 of 1000 stacks are not in the capture file: they exceed its limit" {
		t.Errorf("%d stacks, notes %q", len(got.Stacks), got.Notes)
	}
	if len(ctx.Stacks) != 1000 || len(ctx.Notes) != 1 {
		t.Error("the caller's context was changed")
	}
	ctx.Stacks, ctx.Tool = nil, strings.Repeat("f", maxContext)
	if w, err = NewWriter(io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(ctx); err == nil {
		t.Error("a context beyond the limit was written")
	}
}
