// Package truth reads the truth log of the software ConnectX: what really
// became of every work request, for a profiler's findings to be compared with.
// The columns are documented in the README.md of testbed/softmlx5.
package truth

import "strings"

// Kind says what a row tells of.
type Kind byte

// The kinds of rows.
const (
	Send  Kind = 'S' // a send work request ended
	Recv  Kind = 'R' // a receive completed
	Event Kind = 'E' // a completion event was raised
)

func (k Kind) String() string { return string(rune(k)) }

// Flags are the letters of the flags column.
type Flags uint16

// The flags of a row.
const (
	Signaled      Flags = 1 << iota // it has a completion entry of its own
	Inline                          // its payload, or some of it, was in the WQE
	Slow                            // it was delayed on purpose
	Failed                          // it ended in an error, or was flushed
	RNR                             // the peer had no receive posted
	Solicited                       // it asks for a solicited event
	Retransmitted                   // it was lost once
	SharedQueue                     // a receive from a shared receive queue
	Held                            // its completion entry was visible over 1 us after CQE
)

const flagLetters = "siSErotqh" // in the order of the constants

// Has reports whether all flags of g are set.
func (f Flags) Has(g Flags) bool { return f&g == g }

// String returns the letters as in the log, "-" for none.
func (f Flags) String() string {
	var b strings.Builder
	for i := range len(flagLetters) {
		if f&(1<<i) != 0 {
			b.WriteByte(flagLetters[i])
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}

// Row is one line of the log. Times are CLOCK_MONOTONIC in nanoseconds, the
// clock of bpf_ktime_get_ns; 0 where the kind of row does not know it.
type Row struct {
	Kind   Kind
	PID    int
	QPN    uint32 // 0 for events
	CQN    uint32
	WQE    uint32 // as logged; see Index
	Opcode string // SEND, WRITE, READ, ...; RECV; EVENT
	Bytes  uint32 // payload
	Flags  Flags
	Batch  uint32 // place among the requests of one doorbell

	Doorbell  int64 // the doorbell was seen
	Wire      int64 // first byte on the wire
	ArriveDue int64 // when it should be executed at the peer
	Arrive    int64 // executed there
	CQEDue    int64 // when it should complete
	CQE       int64 // its completion entry became visible, or it was retired
	Injected  int64 // how much of that was injected delay, ns
	CQEIndex  int64 // producer index of the completion entry, 24 bits; -1: none

	// Index is WQE without its wrap at 65536, for send requests and for
	// receives of a QP's own queue: it grows along a queue, by the basic blocks
	// of 64 bytes that the request before took (1 for receives). Across a
	// reset of the QP it still grows, to the next value that ends in WQE.
	Index uint64
}

// Queue is one direction of a queue pair.
type Queue struct {
	PID  int
	QPN  uint32
	Kind Kind // Send or Recv
}

// Queue returns the queue a row belongs to; for events there is none, and the
// QPN is 0.
func (r *Row) Queue() Queue { return Queue{r.PID, r.QPN, r.Kind} }

// Queues groups the send and receive rows by queue, each in the order of
// posting. The log has them in that order, as a queue completes in order.
func Queues(rows []Row) map[Queue][]Row {
	m := make(map[Queue][]Row)
	for _, r := range rows {
		if r.Kind != Event {
			m[r.Queue()] = append(m[r.Queue()], r)
		}
	}
	return m
}
