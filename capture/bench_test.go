package capture

import (
	"bytes"
	"io"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// traffic is what one posting and polling thread gives: per WR a WR, a
// PostEnd, a Completion and now and then a switch.
func traffic(n int) []event.Event {
	out := make([]event.Event, 0, n)
	for i := uint64(0); len(out) < n; i++ {
		t := 1e15 + i*2113 + i%7*31
		e := event.Event{Time: t, PID: 4242, TID: 4242, CPU: 1, Kind: event.KindWR}
		e.Verb = event.Verb{QP: 0x55d0_1234_5000, WRID: 0, Begin: t, QPNum: 0x105, Call: uint32(i), Bytes: 65536, NumSGE: 1, WQE: uint16(i), Stack: 77, Count: 1}
		out = append(out, e)
		e.Kind, e.Time = event.KindPostEnd, t+310+i%5
		out = append(out, e)
		e.Kind, e.Time = event.KindCompletion, t+1900+i%11*7
		e.Verb = event.Verb{CQ: 0x55d0_1234_9000, Begin: e.Time - 45, LastEmpty: e.Time - 80, LastEmptyTID: 4242, QPNum: 0x105, HWTime: e.Time * 3, Count: 1, WQE: uint16(i), EmptyPolls: uint32(i % 50)}
		out = append(out, e)
		if i%16 == 0 {
			s := event.Event{Time: t + 1950, PID: 4242, TID: 4242, Kind: event.KindSwitch, CPU: 1}
			s.Sched = event.Sched{PrevTID: 4242, PrevPID: 4242, NextTID: 99, NextPID: 99, Syscall: -1}
			copy(s.Sched.PrevComm[:], "ib_write_bw")
			copy(s.Sched.NextComm[:], "kworker/1:2")
			out = append(out, s)
		}
	}
	return out[:n]
}

func BenchmarkWrite(b *testing.B) {
	events := traffic(100_000)
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		w, err := NewWriter(&out)
		if err != nil {
			b.Fatal(err)
		}
		for i := range events {
			if err := w.Write(&events[i]); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(&event.Context{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
	b.ReportMetric(float64(out.Len())/float64(len(events)), "bytes/event")
}

func BenchmarkRead(b *testing.B) {
	events := traffic(100_000)
	file := write(b, events, nil, &event.Context{})
	for b.Loop() {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			b.Fatal(err)
		}
		var e event.Event
		for err = r.Next(&e); err == nil; err = r.Next(&e) {
		}
		if err != io.EOF {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

// Neither side allocates per event.
func TestNoAllocationPerEvent(t *testing.T) {
	events := traffic(10_000)
	enc, dec := newEncoder(), newDecoder()
	encode := func() {
		enc.reset()
		for i := range events {
			if err := enc.encode(&events[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	encode()
	if n := testing.AllocsPerRun(5, encode); n > 10 { // the names of the chunk
		t.Errorf("encoding %d events allocates %v times", len(events), n)
	}
	var e event.Event
	decode := func() {
		dec.reset(enc.buf)
		for ok := true; ok; {
			var err error
			if ok, err = dec.next(&e); err != nil {
				t.Fatal(err)
			}
		}
	}
	decode()
	if n := testing.AllocsPerRun(5, decode); n > 0 {
		t.Errorf("decoding %d events allocates %v times", len(events), n)
	}
}
