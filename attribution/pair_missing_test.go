package attribution

import (
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// missingPairings are histories in which posts were dropped or refused.
var missingPairings = []pairing{
	{
		name: "an index that comes again after a loss is that of the later post",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7, wqe: 5})
			t.post(worker, 11, 12, wr{id: 7, wqe: 6})
			t.loss(13, 900, event.KindWR, 70000)
			t.loss(13, 900, event.KindCompletion, 70000)
			t.post(worker, 1000, 1001, wr{id: 7, wqe: 5})
			t.reap(worker, 1019, 1020, event.Verb{WRID: 7, WQE: 5}, event.CompletionWQEValid)
		},
		want: "2@1020", send: "70003 1 0 0 70002 0",
	},
	{
		name: "so it is where the return of the earlier one was dropped as well",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7, wqe: 5})
			t.events = t.events[:len(t.events)-1] // its return
			t.loss(13, 900, event.KindWR, 70000)
			t.loss(13, 900, event.KindPostEnd, 70001)
			t.loss(13, 900, event.KindCompletion, 70000)
			t.post(worker, 1000, 1001, wr{id: 7, wqe: 5})
			t.reap(worker, 1019, 1020, event.Verb{WRID: 7, WQE: 5}, event.CompletionWQEValid)
		},
		want: "1@1020", send: "70002 1 0 0 70001 0",
	},
	{
		name: "a dropped post of a list is lost once",
		tape: func(t *tape) {
			t.made()
			t.loss(9, 10, event.KindWR, 1)
			t.post(worker, 10, 11, wr{id: 1}, wr{id: 2}, wr{id: 3})
			t.events = slices.Delete(t.events, len(t.events)-3, len(t.events)-2) // the second
		},
		want: "", send: "3 0 0 0 3 0",
	},
	{
		name: "a dropped post of a list of receives is lost once, as a receive",
		tape: func(t *tape) {
			t.made()
			t.loss(9, 10, event.KindWR, 1)
			t.post(worker, 10, 11, wr{id: 1, flags: event.WRReceive}, wr{id: 2, flags: event.WRReceive})
			t.events = slices.Delete(t.events, len(t.events)-2, len(t.events)-1)
		},
		want: "", send: "0 0 0 0 0 0", recv: "2 0 0 0 2 0",
	},
	{
		name: "what is missing of a list without a drop counter is lost",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 1}, wr{id: 2}, wr{id: 3})
			t.events = slices.Delete(t.events, len(t.events)-3, len(t.events)-2)
		},
		want: "", send: "3 0 0 0 3 0",
	},
	{
		name: "a shared receive queue that refused a WR takes its wr_id later",
		tape: func(t *tape) {
			t.qp(1, event.ObjectCreated, func(q *event.QP) { q.SRQ = tapeSRQ })
			full := t.post(worker, 5, 6, wr{id: 7, flags: event.WRReceive | event.WRSRQ})
			full.Verb.Result, full.Verb.BadIndex = enomem, 0
			t.post(worker, 6, 7, wr{id: 8, flags: event.WRReceive | event.WRSRQ})
			for i := range uint64(2) {
				t.post(worker, 7+20*i, 8+20*i, wr{id: 7, flags: event.WRReceive | event.WRSRQ})
				t.reap(worker, 18+20*i, 20+20*i, event.Verb{WRID: 7, Opcode: 128}, 0)
			}
		},
		want: "recv 1@20 recv 2@40", send: "0 0 0 0 0 0", recv: "3 2 1 0 0 0",
	},
	{
		name: "a receive that may have been there before we looked is not measured",
		tape: func(t *tape) {
			t.found(128)
			t.reap(worker, 18, 20, event.Verb{WRID: 7, Opcode: 128}, 0)
			t.reap(worker, 28, 30, event.Verb{WRID: 7, Opcode: 128, LastEmpty: 25, LastEmptyTID: worker}, 0)
		},
		want: "recv ?@30", send: "0 0 0 0 0 0", recv: "0 0 0 0 0 0",
	},
	{
		name: "a shared receive queue with one wr_id at a time does not say whether others were posted before",
		tape: func(t *tape) {
			t.qp(1, event.ObjectFound, func(q *event.QP) { q.SRQ = tapeSRQ })
			t.post(worker, 5, 6, wr{id: 7, flags: event.WRReceive | event.WRSRQ})
			t.reap(worker, 18, 20, event.Verb{WRID: 7, Opcode: 128, LastEmpty: 15, LastEmptyTID: worker}, 0)
		},
		want: "recv ?@20", send: "0 0 0 0 0 0", recv: "1 0 0 0 0 1",
	},
}

// TestLatePostIsLostOnce: its call's return counts it, and so does its coming late.
func TestLatePostIsLostOnce(t *testing.T) {
	tp := created()
	tp.post(worker, 10, 1_000_000_000, wr{id: 1}, wr{id: 2})
	n := len(tp.events)
	tp.events[n-1], tp.events[n-2] = tp.events[n-2], tp.events[n-1] // the second post comes after the return
	e, _ := tp.play(t, Config{})
	if s := e.ledger.books[0].String(); s != "2 0 0 0 2 0" {
		t.Errorf("books of sends %s", s)
	}
}
