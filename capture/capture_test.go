package capture

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write testdata/v1.* anew (only before version 1 is released)")

const golden = "testdata/v1"

// fill sets every number below v to a value of its own and every string to a name.
func fill(v reflect.Value, next *uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
		if c, ok := v.Addr().Interface().(*event.Chain); ok {
			c.N = event.ChainMost
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.String:
		*next++
		v.SetString(fmt.Sprintf("name%d", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		*next++
		v.SetFloat(float64(*next) / 8)
	default:
		*next++
		if v.CanUint() {
			v.SetUint(*next%250 + 1)
		} else {
			v.SetInt(-int64(*next%120) - 1)
		}
	}
}

func filled[T any](next *uint64) T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), next)
	return v
}

// part sets the parts of e that its kind has.
func part(e *event.Event, verb event.Verb, sched event.Sched, irq event.Interrupt, loss event.Loss, o event.Object) {
	e.Verb, e.Sched, e.IRQ, e.Loss, e.Object = event.Verb{}, event.Sched{}, event.Interrupt{}, event.Loss{}, nil
	switch e.Kind {
	case event.KindWR, event.KindPostEnd, event.KindCompletion, event.KindArm, event.KindCQE, event.KindCQEvent:
		e.Verb = verb
	case event.KindSwitch:
		e.Sched = sched
		e.Flags &^= event.SwitchMigrated // such is read as a migration
	case event.KindWaking:
		e.Sched = sched
	case event.KindMigration:
		e.Sched = event.Sched{FromCPU: sched.FromCPU}
	case event.KindInterrupt:
		e.IRQ = irq
	case event.KindLoss:
		e.Loss = loss
	case event.KindQP:
		e.Object = &event.Object{Event: o.Event, QP: o.QP}
	case event.KindCQ:
		e.Object = &event.Object{Event: o.Event, CQ: o.CQ}
	case event.KindDeviceContext:
		e.Object = &event.Object{Event: o.Event, Context: o.Context}
	case event.KindTask:
		e.Object = &event.Object{Event: o.Event, Task: o.Task}
	}
}

// sample has every kind with every field of its part set, three times over.
func sample() []event.Event {
	var out []event.Event
	n := uint64(0)
	for range 3 {
		for k := event.Kind(1); int(k) < event.Kinds; k++ {
			n += 1000
			e := event.Event{Time: n, Kind: k, PID: uint32(n / 3), TID: uint32(n / 2), CPU: uint16(n), Flags: uint32(n / 7)}
			qp, cq, dc, task := filled[event.QP](&n), filled[event.CQ](&n), filled[event.DeviceContext](&n), filled[event.Task](&n)
			part(&e, filled[event.Verb](&n), filled[event.Sched](&n), filled[event.Interrupt](&n), filled[event.Loss](&n),
				event.Object{Event: event.ObjectModified, QP: &qp, CQ: &cq, Context: &dc, Task: &task})
			out = append(out, e)
		}
	}
	return out
}

func sampleContext() *event.Context {
	n := uint64(0)
	c := filled[event.Context](&n)
	return &c
}

func write(t testing.TB, events []event.Event, first, last *event.Context) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if first != nil {
		if err := w.WriteContext(first); err != nil {
			t.Fatal(err)
		}
	}
	for i := range events {
		if err := w.Write(&events[i]); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if err := w.Close(last); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read returns everything up to the end or an error.
func read(b []byte) (events []event.Event, r *Reader, err error) {
	r, err = NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	for {
		var e event.Event
		switch err := r.Next(&e); err {
		case nil:
			events = append(events, e)
		case io.EOF:
			return events, r, nil
		default:
			return events, r, err
		}
	}
}

func wantWhole(t testing.TB, b []byte, events []event.Event, ctx *event.Context) {
	t.Helper()
	got, r, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	// cmp is far slower, and only says more where something differs.
	if len(events)+len(got) > 0 && !reflect.DeepEqual(events, got) {
		t.Errorf("events (-written +read):\n%s", cmp.Diff(events, got))
	}
	if d := cmp.Diff(ctx, r.Context()); d != "" {
		t.Errorf("context (-written +read):\n%s", d)
	}
	if r.Cut() {
		t.Error("a whole file reads as cut")
	}
}

// A field that is added to event and not to fields.walk fails here.
func TestEveryFieldTravels(t *testing.T) {
	wantWhole(t, write(t, sample(), nil, sampleContext()), sample(), sampleContext())
}

func TestEmptyFile(t *testing.T) {
	wantWhole(t, write(t, nil, nil, &event.Context{}), nil, &event.Context{})
}

func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := make([]event.Event, rapid.IntRange(0, 60).Draw(t, "n"))
		for i := range events {
			events[i] = event.Event{
				Kind: event.Kind(rapid.IntRange(1, event.Kinds-1).Draw(t, "kind")),
				Time: rapid.Uint64().Draw(t, "time"), PID: rapid.Uint32().Draw(t, "pid"),
				TID: rapid.Uint32().Draw(t, "tid"), CPU: rapid.Uint16().Draw(t, "cpu"), Flags: rapid.Uint32().Draw(t, "flags"),
			}
			qp, cq := rapid.Make[event.QP]().Draw(t, "qp"), rapid.Make[event.CQ]().Draw(t, "cq")
			dc, task := rapid.Make[event.DeviceContext]().Draw(t, "context"), rapid.Make[event.Task]().Draw(t, "task")
			part(&events[i], rapid.Make[event.Verb]().Draw(t, "verb"), chained(rapid.Make[event.Sched]().Draw(t, "sched")),
				rapid.Make[event.Interrupt]().Draw(t, "irq"), rapid.Make[event.Loss]().Draw(t, "loss"),
				event.Object{Event: event.ObjectCreated, QP: &qp, CQ: &cq, Context: &dc, Task: &task})
			events[i].Object = clean(events[i].Object)
		}
		ctx := CleanContext(&event.Context{
			Host:     rapid.Make[event.Host]().Draw(t, "host"),
			Targets:  rapid.SliceOf(rapid.Make[event.Target]()).Draw(t, "targets"),
			Counters: rapid.SliceOf(rapid.Make[event.Counter]()).Draw(t, "counters"),
		})
		got, r, err := read(mustWrite(t, events, ctx))
		if err != nil || r.Cut() {
			t.Fatalf("read: %v, cut %v", err, r.Cut())
		}
		if len(got) != len(events) || len(events) > 0 && !reflect.DeepEqual(got, events) {
			t.Fatalf("events differ:\n%s", cmp.Diff(events, got))
		}
		if !reflect.DeepEqual(r.Context(), ctx) {
			t.Fatalf("context differs:\n%s", cmp.Diff(ctx, r.Context()))
		}
	})
}

// chained makes what is drawn for a chain one: as many links as it says, no more.
func chained(s event.Sched) event.Sched {
	if c := s.Chain; c != nil {
		c.N = 1 + c.N%event.ChainMost
		clear(c.Links[c.N:])
	}
	return s
}

func mustWrite(t *rapid.T, events []event.Event, ctx *event.Context) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	for i := range events {
		err = errors.Join(err, w.Write(&events[i]))
	}
	if err = errors.Join(err, w.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Files of version 1 stay readable, and mean what they did: testdata/v1.json is
// what was written. Both files are of this test's -update.
func TestGoldenVersion1(t *testing.T) {
	var want struct {
		Events  []event.Event
		Context *event.Context
	}
	if *update {
		want.Events, want.Context = sample(), sampleContext()
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for path, b := range map[string][]byte{golden + ".rdt": write(t, want.Events, want.Context, want.Context), golden + ".json": append(text, '\n')} {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(golden + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(golden + ".rdt")
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, b, want.Events, want.Context)
}

func TestManyChunks(t *testing.T) {
	events := make([]event.Event, 100_000)
	for i := range events {
		events[i] = event.Event{Kind: event.KindWR, Time: uint64(i) * 997, PID: 7, TID: 8,
			Verb: event.Verb{WRID: uint64(i) * 0x9e3779b97f4a7c15, Begin: uint64(i)*997 - 3, Call: uint32(i)}}
	}
	b := write(t, events, nil, &event.Context{})
	got, r, err := read(b)
	if err != nil || r.Cut() || !reflect.DeepEqual(got, events) {
		t.Fatalf("%d of %d events, %v, cut %v", len(got), len(events), err, r.Cut())
	}
	if r.sequence < 5 {
		t.Errorf("%d chunks: the writer does not end them", r.sequence)
	}
}

// A recorder that is killed loses what is in the open chunk: at most chunkSpan.
func TestChunkEndsWithTime(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(10) {
		if err := w.Write(&event.Event{Kind: event.KindArm, Time: 5 + i*chunkSpan/2}); err != nil {
			t.Fatal(err)
		}
	}
	got, r, err := read(b.Bytes()) // never closed
	if err != nil || !r.Cut() || len(got) != 8 {
		t.Fatalf("%d events, %v, cut %v; want 8 and a cut file", len(got), err, r.Cut())
	}
}

func TestCleanContext(t *testing.T) {
	in := &event.Context{Host: event.Host{Name: "a\xff\xfeb"}, Targets: []event.Target{{Cmdline: []string{"\xc3(", "ok"}}},
		Cost: event.Cost{TrapNS: math.NaN(), PairNS: math.Inf(1), InPost: 2}}
	want := &event.Context{Host: event.Host{Name: "a\uFFFDb"}, Targets: []event.Target{{Cmdline: []string{"\uFFFD(", "ok"}}},
		Cost: event.Cost{InPost: 2}}
	if d := cmp.Diff(want, CleanContext(in)); d != "" {
		t.Error(d)
	}
	if in.Host.Name != "a\xff\xfeb" {
		t.Error("the input was changed")
	}
	wantWhole(t, write(t, nil, nil, in), nil, want)
}

type failing struct{ after int }

var errFull = errors.New("no space left")

func (f *failing) Write(b []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteErrors(t *testing.T) {
	if _, err := NewWriter(&failing{0}); !errors.Is(err, errFull) {
		t.Errorf("NewWriter: %v", err)
	}
	w, err := NewWriter(&failing{1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // and again
		if err := w.Close(&event.Context{}); !errors.Is(err, errFull) {
			t.Errorf("Close: %v", err)
		}
	}
	if err := w.Write(&event.Event{Kind: event.KindArm}); !errors.Is(err, errFull) {
		t.Errorf("Write: %v", err)
	}
}

func TestWriteRejects(t *testing.T) {
	w, err := NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	long := &event.Object{Context: &event.DeviceContext{Device: string(make([]byte, maxObject))}}
	for name, e := range map[string]event.Event{
		"no kind": {}, "unknown kind": {Kind: event.Kind(event.Kinds)}, "no object": {Kind: event.KindQP},
		"wrong object": {Kind: event.KindQP, Object: &event.Object{CQ: &event.CQ{}}},
		"two objects":  {Kind: event.KindQP, Object: &event.Object{QP: &event.QP{}, CQ: &event.CQ{}}},
		"huge object":  {Kind: event.KindDeviceContext, Object: long},
	} {
		if err := w.Write(&e); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if err := w.Close(&event.Context{}); err != nil {
		t.Errorf("Close after rejected events: %v", err)
	}
	if err := w.Write(&event.Event{Kind: event.KindArm}); err == nil {
		t.Error("written after Close")
	}
}

// TestMigrationOnce: what a recorder wrote of a migration before that had a kind of its
// own, as a switch without a next thread, is read as a migration, and what follows right.
func TestMigrationOnce(t *testing.T) {
	comm := event.Comm{'w'}
	away := event.Event{Time: 5, PID: 8, TID: 9, CPU: 1, Kind: event.KindSwitch, Sched: event.Sched{PrevTID: 9, PrevPID: 8, NextTID: 3, Syscall: -1, PrevComm: comm}}
	moved := event.Event{Time: 6, PID: 8, TID: 9, CPU: 2, Kind: event.KindSwitch, Flags: 0x41, // as it is in files: see event.SwitchMigrated
		Sched: event.Sched{PrevTID: 9, PrevPID: 8, PrevComm: comm, Syscall: -1, FromCPU: 1}}
	back := event.Event{Time: 7, TID: 4, CPU: 2, Kind: event.KindSwitch, Sched: event.Sched{PrevTID: 4, NextTID: 9, NextPID: 8, Syscall: -1, NextComm: comm}}
	got, _, err := read(write(t, []event.Event{away, moved, back}, nil, sampleContext()))
	if err != nil {
		t.Fatal(err)
	}
	want := []event.Event{away, {Time: 6, PID: 8, TID: 9, CPU: 2, Kind: event.KindMigration, Sched: event.Sched{FromCPU: 1}}, back}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
