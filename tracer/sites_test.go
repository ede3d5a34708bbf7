package tracer

import (
	"encoding/binary"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// TestWayOf: a way has the return addresses that can be looked at, each where it lies.
func TestWayOf(t *testing.T) {
	const sp = 0x7000
	stack := make([]byte, 2048)
	for i := range uint64(len(stack) / 8) {
		binary.LittleEndian.PutUint64(stack[8*i:], 1000+i)
	}
	way := func(ip uint64, at ...uint64) bpf.RdmaSiteWay {
		return wayOf(&stackRecord{id: 5, site: bpf.RdmaSiteKey{Ip: ip}, snapshot: unwind.Snapshot{SP: sp, Stack: stack}}, at)
	}
	for name, c := range map[string]struct {
		got, want bpf.RdmaSiteWay
	}{
		"none": {way(1), bpf.RdmaSiteWay{Id: 5}},
		"a post, whose key has the first": {way(1000, sp, sp+16, sp+64),
			bpf.RdmaSiteWay{Id: 5, From: 16, Words: 7, Callers: 2, At: [8]uint8{0, 6}, Caller: [8]uint64{1002, 1008}}},
		"a thread in a function without a frame": {way(1, sp, sp+16),
			bpf.RdmaSiteWay{Id: 5, Words: 3, Callers: 2, At: [8]uint8{0, 2}, Caller: [8]uint64{1000, 1002}}},
		"in a register": {way(1, 0, sp+8),
			bpf.RdmaSiteWay{Id: 5, From: 8, Words: 1, Callers: 1, Caller: [8]uint64{1001}}},
		"too far apart": {way(1, sp+8, sp+8+64*8),
			bpf.RdmaSiteWay{Id: 5, From: 8, Words: 1, Callers: 1, Caller: [8]uint64{1001}}},
		"the last that is near": {way(1, sp+8, sp+8+63*8),
			bpf.RdmaSiteWay{Id: 5, From: 8, Words: 64, Callers: 2, At: [8]uint8{0, 63}, Caller: [8]uint64{1001, 1064}}},
		"not copied": {way(1, sp+8, sp+2048),
			bpf.RdmaSiteWay{Id: 5, From: 8, Words: 1, Callers: 1, Caller: [8]uint64{1001}}},
		"another stack": {way(1, sp+8, 0x9000),
			bpf.RdmaSiteWay{Id: 5, From: 8, Words: 1, Callers: 1, Caller: [8]uint64{1001}}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
	many := make([]uint64, 20)
	for i := range many {
		many[i] = sp + 8 + 8*uint64(i)
	}
	if w := way(1, many...); w.Callers != 8 || w.Words != 8 {
		t.Errorf("of many: %+v", w)
	}
}
