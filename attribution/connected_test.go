package attribution

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// A stall is receiver-not-ready only as long as the peer asks one to wait, where
// the peer's wish was seen.
func TestPeerTimer(t *testing.T) {
	const timer = 14 // 1.28 ms
	modify := func(q *queuePair, dest uint32, lid uint16) {
		q.learn(event.ObjectModified, &event.QP{AttrMask: attrDestNum | attrAV | attrRNRTimer, DestNum: dest, DLID: lid, MinRNRTimer: timer})
	}
	for _, c := range []struct {
		name      string
		num, dest uint32 // of the other one
		lid       uint16
		stall     uint64
		want      Cause
	}{
		{"the peer's timer", 6, 5, 1, 1_283_000, RNR},
		{"twice", 6, 5, 1, 2_570_000, RNR},
		{"another timer", 6, 5, 1, 640_000 + 3_000, Retransmit},
		{"another timer, of whoever the peer is", 6, 4, 1, 640_000 + 3_000, RNR},
		{"the same numbers on two hosts", 6, 5, 2, 640_000 + 3_000, RNR},
	} {
		o := newObjects()
		own, other := o.add(1, 0x1000, 5), o.add(2, 0x1000, c.num)
		own.timeout, other.timeout = 1, 1
		modify(own, 6, 1)
		o.couple(own)
		modify(other, c.dest, c.lid)
		o.couple(other)
		if got := stallCause(c.stall, 5_000, own); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A queue pair that goes on to another peer has the old one's timer no more.
func TestPeerChanges(t *testing.T) {
	o := newObjects()
	own, other := o.add(1, 0x1000, 5), o.add(1, 0x2000, 6)
	for q, dest := range map[*queuePair]uint32{own: 6, other: 5} {
		q.learn(event.ObjectModified, &event.QP{AttrMask: attrDestNum | attrAV, DestNum: dest, DLID: 1})
		o.couple(q)
	}
	if own.connected != other || other.connected != own {
		t.Fatal("two that name each other are not connected")
	}
	own.learn(event.ObjectModified, &event.QP{AttrMask: attrDestNum, DestNum: 9})
	o.couple(own)
	if own.connected != nil || other.connected != nil {
		t.Errorf("connected to %v and %v after one of them went on", own.connected, other.connected)
	}
}
