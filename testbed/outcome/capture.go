package outcome

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
)

// ReadCapture returns what a whole capture file holds. One that is cut off is an
// error.
func ReadCapture(path string) ([]event.Event, *event.Context, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r, err := capture.NewReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	var events []event.Event
	for {
		var e event.Event
		switch err := r.Next(&e); {
		case errors.Is(err, io.EOF) && !r.Cut():
			return events, r.Context(), nil
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w, cut %v", path, err, r.Cut())
		}
		events = append(events, e)
	}
}

// Observe analyses a capture again, as rdmatrace did, and shows every work request
// that was measured.
func Observe(events []event.Event, ctx *event.Context, observe func(*attribution.WR, []attribution.Segment)) {
	engine := attribution.New(attribution.Config{Devices: ctx.Devices, Cost: ctx.Cost, Arch: ctx.Host.Arch, Observe: observe})
	for i := range events {
		engine.Add(&events[i])
	}
	engine.Finish(ctx)
}

// Completions is how many the capture under way holds; see Count.
func Completions(path string) int {
	return Count(path, func(e *event.Event) bool { return e.Kind == event.KindCompletion })
}

// Count is how many events of a kind the capture under way holds, which gets the
// name path when it is whole; 0 as long as there is none.
func Count(path string, is func(*event.Event) bool) (n int) {
	names, _ := filepath.Glob(path + ".*.tmp")
	if len(names) != 1 {
		return 0
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		return 0
	}
	r, err := capture.NewReader(bytes.NewReader(b))
	if err != nil {
		return 0
	}
	var e event.Event
	for r.Next(&e) == nil {
		if is(&e) {
			n++
		}
	}
	return n
}
