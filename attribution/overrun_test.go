package attribution

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// The depth at a post does not count what that post proves to be gone.
func TestDepthAfterOverrun(t *testing.T) {
	tp := newTape()
	tp.made()
	tp.post(worker, 10, 11, wr{id: 7, wqe: 5})
	tp.loss(13, 900, event.KindWR, 70000)
	tp.post(worker, 1000, 1001, wr{id: 7, wqe: 5})
	tp.reap(worker, 1019, 1020, event.Verb{WRID: 7, WQE: 5}, event.CompletionWQEValid)
	_, rec := tp.play(t, Config{})
	if len(rec.wrs) != 1 {
		t.Fatalf("%d work requests, want one", len(rec.wrs))
	}
	if d := rec.wrs[0].depth; d != 0 {
		t.Errorf("at a depth of %d, want 0", d)
	}
}
