package capture

import (
	"encoding/json"
	"errors"

	"github.com/rdmatrace/rdmatrace/event"
)

// An event is a kind, a mask of the fields that follow, and one varint for each
// set bit: the zigzag difference between the field and its prediction, left out
// where it is zero. Since every field is one varint, a reader skips the fields
// and the kinds it doesn't know.
//
// fields is the one definition of the fields and their order, used in both
// directions. The order is part of the format: new fields go to the end.
type fields struct {
	mask   uint64
	values [64]uint64
	n      int
	decode bool

	names  nameTable
	chains chainTable
	links  []byte // to encode: a chain
	json   []byte // to encode: the event's object
}

// nameTable numbers the byte strings of a chunk; 0 is the empty one. An encoder
// only interns, a decoder only looks up.
type nameTable interface {
	intern(name []byte) uint64
	lookup(id uint64) ([]byte, bool)
}

type integer interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32
}

// field passes one number, predicted to be guess.
func field[T integer](f *fields, v *T, guess T) {
	i := f.n
	f.n++
	if f.decode {
		*v = guess
		if f.mask&(1<<i) != 0 {
			*v += T(unzigzag(f.values[i]))
		}
		return
	}
	if *v != guess {
		f.mask |= 1 << i
		f.values[i] = zigzag(int64(*v) - int64(guess))
	}
}

// name passes a NUL-padded name. It reports whether the name exists and fits.
func (f *fields) name(v, guess []byte) bool {
	i := f.n
	f.n++
	if !f.decode {
		if string(v) != string(guess) {
			f.mask |= 1 << i
			f.values[i] = f.names.intern(trimNUL(v))
		}
		return true
	}
	copy(v, guess)
	if f.mask&(1<<i) == 0 {
		return true
	}
	s, ok := f.names.lookup(f.values[i])
	if !ok || len(s) > len(v) {
		return false
	}
	clear(v[copy(v, s):])
	return true
}

func trimNUL(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// walk passes the fields of e that its kind has; prev is the event of the same
// kind before it in the chunk, zero at first, from which they are predicted.
// It reports whether every name was good.
func (f *fields) walk(e, prev *event.Event) bool {
	field(f, &e.Time, prev.Time)
	field(f, &e.TID, prev.TID)
	field(f, &e.PID, prev.PID)
	field(f, &e.CPU, prev.CPU)
	field(f, &e.Flags, prev.Flags)
	switch e.Kind {
	case event.KindWR, event.KindPostEnd, event.KindCompletion, event.KindArm, event.KindCQE, event.KindCQEvent:
		f.verb(e, prev)
	case event.KindSwitch, event.KindWaking:
		return f.sched(e, prev)
	case event.KindMigration:
		field(f, &e.Sched.FromCPU, prev.Sched.FromCPU)
	case event.KindInterrupt:
		return f.interrupt(e, prev)
	case event.KindQP, event.KindCQ, event.KindDeviceContext, event.KindTask:
		return f.object(e)
	case event.KindLoss:
		field(f, &e.Loss.Begin, e.Time)
		field(f, &e.Loss.Count, prev.Loss.Count)
		field(f, &e.Loss.Of, prev.Loss.Of)
	case event.KindSample:
		field(f, &e.Sample.Stack, prev.Sample.Stack)
		field(f, &e.Sample.Period, prev.Sample.Period)
	}
	return true
}

// object passes e.Object, which is rare, as JSON.
func (f *fields) object(e *event.Event) bool {
	i := f.n
	f.n++
	if !f.decode {
		f.mask |= 1 << i
		f.values[i] = f.names.intern(f.json)
		return true
	}
	s, ok := f.names.lookup(f.values[i])
	if !ok || f.mask&(1<<i) == 0 {
		return false
	}
	o := new(event.Object)
	if json.Unmarshal(s, o) != nil || checkObject(e.Kind, o) != nil {
		return false
	}
	e.Object = o
	return true
}

// checkObject says what is wrong with the object of an event.
func checkObject(k event.Kind, o *event.Object) error {
	if o == nil {
		return errors.New("the object is missing")
	}
	has := map[event.Kind]bool{
		event.KindQP: o.QP != nil, event.KindCQ: o.CQ != nil,
		event.KindDeviceContext: o.Context != nil, event.KindTask: o.Task != nil,
	}
	for kind, set := range has {
		if set != (kind == k) {
			return errors.New("the object is of another kind")
		}
	}
	return nil
}

func (f *fields) verb(e, prev *event.Event) {
	v, p := &e.Verb, &prev.Verb
	field(f, &v.Begin, e.Time)
	field(f, &v.QP, p.QP)
	field(f, &v.CQ, p.CQ)
	field(f, &v.QPNum, p.QPNum)
	field(f, &v.WRID, p.WRID)
	field(f, &v.Call, p.Call+1)
	field(f, &v.Index, p.Index)
	field(f, &v.Count, p.Count)
	field(f, &v.Opcode, p.Opcode)
	field(f, &v.Bytes, p.Bytes)
	field(f, &v.SendFlags, p.SendFlags)
	field(f, &v.WQE, p.WQE)
	field(f, &v.NumSGE, p.NumSGE)
	field(f, &v.Stack, p.Stack)
	field(f, &v.Traps, p.Traps)
	field(f, &v.LastEmpty, p.LastEmpty)
	field(f, &v.LastEmptyTID, p.LastEmptyTID)
	field(f, &v.EmptyPolls, p.EmptyPolls)
	field(f, &v.HWTime, p.HWTime)
	field(f, &v.WCFlags, p.WCFlags)
	field(f, &v.RemoteQPN, p.RemoteQPN)
	field(f, &v.Status, p.Status)
	field(f, &v.VendorErr, p.VendorErr)
	field(f, &v.Result, p.Result)
	field(f, &v.BadIndex, p.BadIndex)
	guess := p.End
	if e.Kind == event.KindCQE {
		guess = e.Time
	}
	field(f, &v.End, guess)
	field(f, &v.Entry, p.Entry+p.Entries)
	field(f, &v.Entries, p.Entries)
}

func (f *fields) sched(e, prev *event.Event) bool {
	s, p := &e.Sched, &prev.Sched
	field(f, &s.PrevTID, p.PrevTID)
	field(f, &s.PrevPID, p.PrevPID)
	field(f, &s.NextTID, p.NextTID)
	field(f, &s.NextPID, p.NextPID)
	field(f, &s.PrevState, p.PrevState)
	field(f, &s.Syscall, p.Syscall)
	field(f, &s.SyscallArg, p.SyscallArg)
	ok := f.name(s.PrevComm[:], p.PrevComm[:])
	ok = f.name(s.NextComm[:], p.NextComm[:]) && ok
	field(f, &s.NextCgroup, p.NextCgroup)
	field(f, &s.Interrupt, p.Interrupt)
	field(f, &s.Vec, p.Vec)
	// Zero where the waker ran in no interrupt, else shortly before Time.
	guess := uint64(0)
	if s.Interrupt != event.InterruptNone {
		guess = e.Time
	}
	field(f, &s.InterruptBegin, guess)
	ok = f.chain(&s.Chain, p.Chain) && ok
	guess = 0
	if s.Chain != nil {
		guess = s.InterruptBegin
	}
	field(f, &s.ChainBegin, guess)
	field(f, &s.IdleSince, p.IdleSince)
	field(f, &s.PrevCgroup, p.PrevCgroup)
	field(f, &s.PrevStack, p.PrevStack)
	field(f, &s.FromCPU, p.FromCPU) // not any more, see migrated
	field(f, &s.CQ, p.CQ)
	return ok
}

func (f *fields) interrupt(e, prev *event.Event) bool {
	q, p := &e.IRQ, &prev.IRQ
	field(f, &q.Begin, e.Time)
	field(f, &q.Nested, p.Nested)
	field(f, &q.Kind, p.Kind)
	field(f, &q.Vec, p.Vec)
	return f.name(q.Name[:], p.Name[:])
}
