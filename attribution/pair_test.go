package attribution

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// pairing is a hand-made history and what is made of it: each measured WR as its
// index and the time of its reap in us, with the unsignalled WRs it retired, and
// the books.
type pairing struct {
	name string
	tape func(t *tape)
	want string
	send string // books: posted completed outstanding flushed lost excluded
	recv string
}

var pairings = []pairing{
	{
		name: "one after the other",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 1})
			t.reap(worker, 19, 20, event.Verb{WRID: 1}, 0)
			t.post(worker, 30, 31, wr{id: 1})
			t.reap(worker, 39, 40, event.Verb{WRID: 1}, 0)
		},
		want: "0@20 1@40", send: "2 2 0 0 0 0",
	},
	{
		name: "a deep pipeline with one wr_id",
		tape: func(t *tape) {
			t.made()
			for i := range uint64(16) {
				t.post(worker, 10+i, 11+i, wr{id: 7})
			}
			for i := range uint64(15) {
				t.reap(worker, 39+i, 40+i, event.Verb{WRID: 7}, 0)
			}
		},
		want: "0@40 1@41 2@42 3@43 4@44 5@45 6@46 7@47 8@48 9@49 10@50 11@51 12@52 13@53 14@54", send: "16 15 1 0 0 0",
	},
	{
		name: "unsignalled batches across calls",
		tape: func(t *tape) {
			t.made()
			for i := range uint64(10) {
				t.post(worker, 10+i, 11+i, wr{id: i, unsignalled: i%5 != 4})
			}
			t.reap(worker, 39, 40, event.Verb{WRID: 4}, 0)
			t.reap(worker, 41, 42, event.Verb{WRID: 9}, 0)
		},
		want: "4@40+4 9@42+4", send: "10 10 0 0 0 0",
	},
	{
		name: "a list is a chain of its own",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 1, unsignalled: true})
			t.post(worker, 20, 21, wr{id: 2, bytes: 1 << 20, unsignalled: true}, wr{id: 2, opcode: 1})
			t.reap(worker, 39, 40, event.Verb{WRID: 2}, 0)
		},
		want: "2@40+2", send: "3 3 0 0 0 0",
	},
	{
		name: "bad_wr in the middle of a list",
		tape: func(t *tape) {
			t.made()
			end := t.post(worker, 10, 11, wr{id: 1}, wr{id: 2}, wr{id: 3})
			end.Verb.Result, end.Verb.BadIndex = enomem, 1
			t.post(worker, 12, 13, wr{id: 4})
			t.reap(worker, 39, 40, event.Verb{WRID: 1}, 0)
			t.reap(worker, 41, 42, event.Verb{WRID: 4}, 0)
		},
		want: "0@40 1@42", send: "2 2 0 0 0 0",
	},
	{
		name: "a builder that fails posts nothing",
		tape: func(t *tape) {
			t.made()
			end := t.post(worker, 10, 11, wr{id: 7, flags: event.WRBuilder}, wr{id: 7, flags: event.WRBuilder})
			end.Verb.Result = 22
			t.post(worker, 12, 13, wr{id: 7, flags: event.WRBuilder})
			t.reap(worker, 39, 40, event.Verb{WRID: 7}, 0)
		},
		want: "0@40", send: "1 1 0 0 0 0",
	},
	{
		name: "an error without bad_wr un-anchors",
		tape: func(t *tape) {
			t.made()
			end := t.post(worker, 10, 11, wr{id: 7}, wr{id: 7})
			end.Verb.Result = 22
			t.post(worker, 12, 13, wr{id: 7})
			t.reap(worker, 39, 40, event.Verb{WRID: 7}, 0)
		},
		want: "", send: "3 0 0 0 2 1",
	},
	{
		name: "reaped by another thread before the post returned",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 60, wr{id: 1, wqe: 1})
			t.reap(helper, 38, 40, event.Verb{WRID: 1, WQE: 1}, event.CompletionWQEValid)
		},
		want: "0@40", send: "1 1 0 0 0 0",
	},
	{
		name: "a post that was not seen to return is lost",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 0, wr{id: 1})
			t.reap(worker, 38, 40, event.Verb{WRID: 1}, 0)
			t.post(worker, 50, 51, wr{id: 2})
			t.reap(worker, 58, 60, event.Verb{WRID: 2}, 0)
		},
		want: "1@60", send: "2 1 0 0 1 0",
	},
	{
		name: "a return without an entry is ignored",
		tape: func(t *tape) {
			t.made()
			t.add(event.Event{Time: 5, TID: worker, Kind: event.KindPostEnd, Verb: event.Verb{QP: tapeQP, Call: 99, Count: 3}})
			t.post(worker, 10, 11, wr{id: 1})
			t.reap(worker, 38, 40, event.Verb{WRID: 1}, 0)
		},
		want: "0@40", send: "1 1 0 0 0 0",
	},
	{
		name: "attached to a full queue with one wr_id: WQE indices tell",
		tape: func(t *tape) {
			t.found(128)
			for i := range uint64(6) { // four were in flight: one comes back, one is posted
				t.post(worker, 20+10*i, 21+10*i, wr{id: 7, wqe: 105 + int(i)})
				t.reap(worker, 22+10*i, 24+10*i, event.Verb{WRID: 7, WQE: uint16(101 + i)}, event.CompletionWQEValid)
			}
		},
		want: "0@64 1@74", send: "6 2 4 0 0 0",
	},
	{
		name: "attached to a full queue with one wr_id and no index: nothing is believed",
		tape: func(t *tape) {
			t.found(128)
			for i := range uint64(6) {
				t.post(worker, 20+10*i, 21+10*i, wr{id: 7})
				t.reap(worker, 22+10*i, 24+10*i, event.Verb{WRID: 7, LastEmpty: 21 + 10*i, LastEmptyTID: worker}, 0)
			}
		},
		want: "", send: "6 0 0 0 0 6",
	},
	{
		name: "attached to a queue of one: its room tells",
		tape: func(t *tape) {
			t.found(1)
			t.reap(worker, 12, 14, event.Verb{WRID: 7}, 0)
			for i := range uint64(3) {
				t.post(worker, 20+10*i, 21+10*i, wr{id: 7})
				t.reap(worker, 22+10*i, 24+10*i, event.Verb{WRID: 7}, 0)
			}
		},
		want: "0@24 1@34 2@44", send: "3 3 0 0 0 0",
	},
	{
		name: "attached: rising wr_ids tell once there are more than fit",
		tape: func(t *tape) {
			t.found(3)
			for i := range uint64(12) {
				t.post(worker, 20+10*i, 21+10*i, wr{id: 50 + i})
				t.reap(worker, 22+10*i, 24+10*i, event.Verb{WRID: 48 + i}, 0)
			}
		},
		want: "6@104 7@114 8@124 9@134", send: "12 4 2 0 0 6",
	},
	{
		name: "attached: there may be more room than is said",
		tape: func(t *tape) {
			t.found(4) // 7 of librxe
			for i := range uint64(12) {
				t.post(worker, 20+10*i, 21+10*i, wr{id: 50 + i})
				t.reap(worker, 22+10*i, 24+10*i, event.Verb{WRID: 48 + i}, 0)
			}
		},
		send: "12 0 0 0 0 12",
	},
	{
		name: "attached: long silence tells",
		tape: func(t *tape) {
			t.found(128)
			t.reap(worker, 12, 14, event.Verb{WRID: 7}, 0)
			const later = 3_000_000 // us
			t.post(worker, later, later+1, wr{id: 7})
			t.reap(worker, later+5, later+6, event.Verb{WRID: 7, LastEmpty: later + 4, LastEmptyTID: worker}, 0)
		},
		want: "0@3000006", send: "1 1 0 0 0 0",
	},
	{
		name: "a queue pair brought up in the window is empty",
		tape: func(t *tape) {
			t.qp(1, event.ObjectFound, func(q *event.QP) { q.State = 1; q.SigAll = 0 })
			t.qp(5, event.ObjectModified, func(q *event.QP) { q.State, q.AttrMask = 3, attrState })
			t.post(worker, 10, 11, wr{id: 7})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "0@40", send: "1 1 0 0 0 0",
	},
	{
		name: "a look that took long tells what was before",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.qp(20, event.ObjectFound, func(q *event.QP) { q.State = 1 })
			t.qp(21, event.ObjectFound, func(q *event.QP) { q.State, q.Num = 1, 77 })
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "0@40", send: "1 1 0 0 0 0",
	},
	{
		name: "sq_sig_all is found out",
		tape: func(t *tape) {
			t.qp(1, event.ObjectCreated, func(q *event.QP) { q.SigAll = 2 })
			t.post(worker, 10, 11, wr{id: 1, unsignalled: true})
			t.post(worker, 12, 13, wr{id: 2, unsignalled: true})
			t.reap(worker, 38, 40, event.Verb{WRID: 1}, 0)
			t.reap(worker, 41, 42, event.Verb{WRID: 2}, 0)
		},
		want: "0@40 1@42", send: "2 2 0 0 0 0",
	},
	{
		name: "a memory window bound past the probes",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.reap(worker, 18, 20, event.Verb{WRID: 7, Opcode: wcBindMW}, 0)
			t.reap(worker, 28, 30, event.Verb{WRID: 7}, 0)
		},
		want: "0@30", send: "1 1 0 0 0 0",
	},
	{
		name: "a post past the probes un-anchors",
		tape: func(t *tape) {
			t.made()
			t.reap(worker, 8, 9, event.Verb{WRID: 7}, 0)
			t.post(worker, 10, 11, wr{id: 7})
			t.reap(worker, 18, 20, event.Verb{WRID: 7}, 0)
		},
		want: "", send: "1 0 0 0 0 1",
	},
	{
		name: "an error, and its consequences",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 1, unsignalled: true})
			t.post(worker, 12, 13, wr{id: 2})
			t.post(worker, 14, 15, wr{id: 3, unsignalled: true})
			t.post(worker, 16, 17, wr{id: 4})
			t.reap(worker, 38, 40, event.Verb{WRID: 2, Status: 12, Opcode: 200}, 0)
			t.reap(worker, 41, 42, event.Verb{WRID: 3, Status: statusFlush, Opcode: 200}, 0)
			t.reap(worker, 41, 42, event.Verb{WRID: 4, Status: statusFlush, Index: 1}, 0)
		},
		want: "", send: "4 1 0 3 0 0",
	},
	{
		name: "a reset drops what is pending",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.qp(20, event.ObjectModified, func(q *event.QP) { q.State, q.AttrMask = 0, attrState })
			t.post(worker, 30, 31, wr{id: 7})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "1@40", send: "2 1 1 0 0 0",
	},
	{
		name: "number and address are used again",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.qp(20, event.ObjectDestroyed, nil)
			t.qp(25, event.ObjectCreated, nil)
			t.post(worker, 30, 31, wr{id: 7})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "0@40", send: "2 1 1 0 0 0",
	},
	{
		name: "two queue pairs with one number on two devices",
		tape: func(t *tape) {
			t.made()
			t.qp(2, event.ObjectCreated, func(q *event.QP) { q.Addr, q.SendCQ, q.RecvCQ = 0x5000, 0x6000, 0x6000 })
			t.post(worker, 10, 11, wr{id: 7})
			t.add(event.Event{Time: 28, TID: worker, Kind: event.KindCompletion, Verb: event.Verb{CQ: 0x6000, QPNum: tapeNum, WRID: 7}})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "0@40", send: "1 1 0 0 0 0",
	},
	{
		name: "two threads: the one that returned first was first",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 30, wr{id: 1})
			t.post(helper, 11, 20, wr{id: 2})
			t.reap(worker, 38, 40, event.Verb{WRID: 2}, 0)
			t.reap(worker, 41, 42, event.Verb{WRID: 1}, 0)
		},
		want: "1@40 0@42", send: "2 2 0 0 0 0",
	},
	{
		name: "two threads with one wr_id: which was first is not known",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 30, wr{id: 7})
			t.post(helper, 11, 20, wr{id: 7})
			t.post(worker, 32, 33, wr{id: 7})
			for i := range uint64(3) {
				t.reap(worker, 38+3*i, 40+3*i, event.Verb{WRID: 7}, 0)
			}
		},
		want: "2@46", send: "3 1 0 0 0 2",
	},
	{
		name: "lost records un-anchor until an index tells",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7, wqe: 1})
			t.post(worker, 12, 13, wr{id: 7, wqe: 2})
			t.loss(14, 20, event.KindCompletion, 1)
			t.post(worker, 30, 31, wr{id: 7, wqe: 3})
			t.reap(worker, 38, 40, event.Verb{WRID: 7, WQE: 2}, event.CompletionWQEValid)
			t.reap(worker, 41, 42, event.Verb{WRID: 7, WQE: 3}, event.CompletionWQEValid)
		},
		want: "1@40 2@42", send: "3 2 0 0 1 0",
	},
	{
		name: "lost records, and nothing to find the place by",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.loss(14, 20, event.KindWR, 3)
			t.post(worker, 30, 31, wr{id: 7})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "", send: "5 0 0 0 4 1",
	},
	{
		name: "an unreadable completion un-anchors the queues of its CQ",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.post(worker, 12, 13, wr{id: 7})
			t.reap(worker, 18, 20, event.Verb{}, event.CompletionUnreadable)
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "", send: "2 0 0 0 2 0",
	},
	{
		name: "sends and receives on one CQ",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 5, 6, wr{id: 7, flags: event.WRReceive})
			t.post(worker, 10, 11, wr{id: 7})
			t.reap(worker, 18, 20, event.Verb{WRID: 7, Opcode: 128, Bytes: 64}, 0)
			t.reap(worker, 28, 30, event.Verb{WRID: 7}, 0)
		},
		want: "recv 0@20 0@30", send: "1 1 0 0 0 0", recv: "1 1 0 0 0 0",
	},
	{
		name: "receives out of order go by wr_id",
		tape: func(t *tape) {
			t.made()
			for i := range uint64(3) {
				t.post(worker, 5+i, 6+i, wr{id: i, flags: event.WRReceive})
			}
			for i, id := range []uint64{2, 0, 1} {
				t.reap(worker, 18+10*uint64(i), 20+10*uint64(i), event.Verb{WRID: id, Opcode: 128}, 0)
			}
		},
		want: "recv 2@20 recv 0@30 recv 1@40", send: "0 0 0 0 0 0", recv: "3 3 0 0 0 0",
	},
	{
		name: "a shared receive queue goes by wr_id",
		tape: func(t *tape) {
			t.qp(1, event.ObjectCreated, func(q *event.QP) { q.SRQ = tapeSRQ })
			for i := range uint64(3) {
				t.post(worker, 5+i, 6+i, wr{id: 100 + i, flags: event.WRReceive | event.WRSRQ})
			}
			t.reap(worker, 18, 20, event.Verb{WRID: 101, Opcode: 128}, 0)
			t.reap(worker, 28, 30, event.Verb{WRID: 555, Opcode: 128}, 0) // posted before we looked
			t.reap(worker, 38, 40, event.Verb{WRID: 100, Opcode: 129}, 0)
		},
		want: "recv 1@20 recv ?@30 recv 0@40", send: "0 0 0 0 0 0", recv: "3 2 1 0 0 0",
	},
	{
		name: "a shared receive queue with one wr_id does not say which",
		tape: func(t *tape) {
			t.qp(1, event.ObjectCreated, func(q *event.QP) { q.SRQ = tapeSRQ })
			t.post(worker, 5, 6, wr{id: 7, flags: event.WRReceive | event.WRSRQ}, wr{id: 7, flags: event.WRReceive | event.WRSRQ})
			t.reap(worker, 18, 20, event.Verb{WRID: 7, Opcode: 128, LastEmpty: 15, LastEmptyTID: worker}, 0)
		},
		want: "recv ?@20", send: "0 0 0 0 0 0", recv: "2 0 1 0 0 1",
	},
	{
		name: "receives of a queue pair that was alive: their latency is known, their wait is not",
		tape: func(t *tape) {
			t.found(128)
			t.post(worker, 5, 6, wr{id: 7, flags: event.WRReceive})
			t.reap(worker, 18, 20, event.Verb{WRID: 7, Opcode: 128, LastEmpty: 19, LastEmptyTID: worker}, 0)
		},
		want: "recv ?@20", send: "0 0 0 0 0 0", recv: "1 0 0 0 0 1",
	},
	{
		name: "a new image of the process has no queue pairs",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7})
			t.add(event.Event{Time: 20, TID: worker, Kind: event.KindTask, Object: &event.Object{Task: &event.Task{Event: event.TaskExec}}})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "", send: "1 0 1 0 0 0",
	},
	{
		name: "truncated lists and unreadable WRs un-anchor",
		tape: func(t *tape) {
			t.made()
			t.post(worker, 10, 11, wr{id: 7}, wr{id: 7, flags: event.WRTruncated})
			t.reap(worker, 38, 40, event.Verb{WRID: 7}, 0)
		},
		want: "", send: "2 0 0 0 2 0",
	},
}

func (b *Books) String() string {
	return fmt.Sprint(b.Posted, b.Completed, b.Outstanding, b.Flushed, b.Lost, b.Excluded)
}

func TestPairing(t *testing.T) {
	for _, test := range slices.Concat(pairings, missingPairings) {
		t.Run(test.name, func(t *testing.T) {
			tp := newTape()
			test.tape(tp)
			for i := range tp.events { // the tapes are in us
				ev := &tp.events[i]
				ev.Time *= us
				ev.Loss.Begin *= us
				ev.Verb.Begin *= us
				ev.Verb.LastEmpty *= us
			}
			e, rec := tp.play(t, Config{})
			checkBooks(t, e)
			var got []string
			for i := range rec.wrs {
				m := &rec.wrs[i]
				if m.status != 0 {
					continue
				}
				checkCut(t, m)
				s := fmt.Sprintf("%d@%d", m.index, m.reap/us)
				if m.unmatched {
					s = fmt.Sprintf("?@%d", m.reap/us)
				}
				if m.receive {
					s = "recv " + s
				}
				if m.retired > 0 {
					s += fmt.Sprintf("+%d", m.retired)
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("got  %s\nwant %s", s, test.want)
			}
			if s := e.ledger.books[0].String(); s != test.send {
				t.Errorf("books of sends %s, want %s", s, test.send)
			}
			if s := e.ledger.books[1].String(); test.recv != "" && s != test.recv {
				t.Errorf("books of receives %s, want %s", s, test.recv)
			}
		})
	}
}

func TestChain(t *testing.T) {
	tp := newTape()
	tp.made()
	tp.post(worker, 5*us, 6*us, wr{id: 1, bytes: 100, unsignalled: true})
	tp.post(worker, 10*us, 11*us, wr{id: 2, bytes: 1 << 20, unsignalled: true}, wr{id: 2, opcode: 1, bytes: 8})
	tp.reap(worker, 39*us, 40*us, event.Verb{WRID: 2}, 0)
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	if m.bytes != 1<<20+8 || m.chained != 2 || m.retired != 2 || m.retBytes != 1<<20+100 || m.opcode != 1 || m.depth != 2 {
		t.Errorf("bytes %d, chained %d, retired %d with %d, opcode %d, depth %d", m.bytes, m.chained, m.retired, m.retBytes, m.opcode, m.depth)
	}
}
