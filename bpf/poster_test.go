//go:build amd64

package bpf

import (
	"runtime"
	"testing"
	"unsafe"
)

// posts has its last three arguments, as Go passes them, where C has its fourth, its
// first and its second.
//
//go:noinline
func posts(_, _, fourth, qp, list uintptr) uintptr { return fourth ^ qp ^ list }

// As in verbs.h.
type (
	sendWR struct {
		ID, Next, List         uint64
		Entries                int32
		Opcode, Flags, Imm     uint32
		Remote                 uint64
		RemoteQPN, RemoteQueue uint32
	}
	recvWR struct {
		ID, Next, List uint64
		Entries        int32
		_              uint32
	}
	sge struct {
		Addr        uint64
		Length, Key uint32
	}
	queue struct {
		_        [6]uint64
		_        uint32
		Num      uint32
		_        uint32
		Type     uint32
		_        [104]byte
		ID       uint64 // of an ibv_qp_ex: of the request that is built next
		Flags, _ uint32
	}
)

// As in verbs.h; nothing is at the address nowhere.
const (
	typeRC, typeUD = 2, 4
	nowhere        = 8
)

// poster is a taker that posts.
type poster struct {
	*taker
	qp    *queue
	sends []sendWR
	recvs []recvWR
	sges  []sge
}

func newPoster(t testing.TB, programs ...string) *poster {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return &poster{taker: newTaker(t, programs...), qp: &queue{Num: 7, Type: typeRC}}
}

func address64[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// list makes requests that are linked, of one scatter entry each, and behind them one that
// cannot be read if they are cut.
func (p *poster) list(n int, cut bool) {
	p.sends, p.recvs, p.sges = make([]sendWR, n+1), make([]recvWR, n+1), make([]sge, n+1)
	for i := range n {
		p.sges[i].Length = uint32(1000 + i)
		list := address64(&p.sges[i])
		p.sends[i] = sendWR{ID: uint64(100 + i), Next: address64(&p.sends[i+1]), List: list, Entries: 1, Opcode: 2, Flags: 3, RemoteQPN: 99}
		p.recvs[i] = recvWR{ID: uint64(100 + i), Next: address64(&p.recvs[i+1]), List: list, Entries: 1}
	}
	end := uint64(0)
	if cut {
		end = nowhere
	}
	p.sends[n-1].Next, p.recvs[n-1].Next = end, end
}

func (p *poster) post(list uint64) {
	p.taken = posts(0, 0, 0, uintptr(unsafe.Pointer(p.qp)), uintptr(list))
	runtime.KeepAlive(p)
}
