package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/rdmatrace/rdmatrace/event"
)

// small is a file of several chunks: context, one of events for each second, context, end.
func small(t testing.TB) ([]byte, []event.Event) {
	events := make([]event.Event, 12)
	for i := range events {
		events[i] = event.Event{Kind: event.KindArm, Time: uint64(i) * chunkSpan / 3, TID: uint32(i), Verb: event.Verb{CQ: 1 << 40}}
	}
	return write(t, events, &event.Context{Tool: "first"}, &event.Context{Tool: "last"}), events
}

// boundaries are the offsets at which chunks begin, and the end of the file.
func boundaries(b []byte) []int {
	at := []int{fileHeaderSize}
	for last := at[0]; last < len(b); {
		var h chunkHeader
		h.parse(b[last:])
		last += chunkHeaderSize + int(h.stored)
		at = append(at, last)
	}
	return at
}

func TestCutAtEveryByte(t *testing.T) {
	whole, events := small(t)
	ends := boundaries(whole)
	for n := range len(whole) {
		got, r, err := read(whole[:n])
		if n < fileHeaderSize {
			if err == nil {
				t.Fatalf("cut at %d, inside the header: no error", n)
			}
			continue
		}
		if err != nil || !r.Cut() {
			t.Fatalf("cut at %d: %v, cut %v", n, err, r.Cut())
		}
		chunks := 0
		for chunks+1 < len(ends) && ends[chunks+1] <= n {
			chunks++
		}
		// Chunk 0 and the second to last hold contexts, the others three events each.
		want := events[:3*min(max(chunks-1, 0), 4)]
		if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d, after %d chunks: %d events, want %d", n, chunks, len(got), len(want))
		}
		tool := ""
		switch ctx := r.Context(); {
		case chunks >= 6:
			tool = "last"
		case chunks >= 1:
			tool = "first"
		case ctx != nil:
			t.Fatalf("cut at %d: a context from nowhere", n)
		}
		if tool != "" && r.Context().Tool != tool {
			t.Fatalf("cut at %d: context %q, want %q", n, r.Context().Tool, tool)
		}
	}
}

// Every single flipped bit is noticed, and the events before it are good.
func TestEveryBitFlip(t *testing.T) {
	whole, events := small(t)
	for bit := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		got, r, err := read(b)
		if err == nil && !r.Cut() {
			t.Fatalf("bit %d of byte %d: not noticed", bit%8, bit/8)
		}
		if len(got) > len(events) || len(got) > 0 && !reflect.DeepEqual(got, events[:len(got)]) {
			t.Fatalf("bit %d of byte %d: wrong events came first", bit%8, bit/8)
		}
		if err != nil && r != nil {
			if again := r.Next(new(event.Event)); again != err {
				t.Fatalf("bit %d of byte %d: then %v, after %v", bit%8, bit/8, again, err)
			}
		}
	}
}

// chunkOf makes a chunk with a true checksum and any content.
func chunkOf(sequence uint32, typ chunkType, payload []byte, size uint32) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return stored(chunkHeader{sequence: sequence, typ: typ, flags: flagZstd, size: size}, z.EncodeAll(payload, nil))
}

func stored(h chunkHeader, data []byte) []byte {
	h.stored = uint32(len(data))
	b := h.append(nil)
	h.crc = crc32.Update(crc32.Checksum(b[:chunkHeaderSize-4], crcTable), crcTable, data)
	return append(h.append(nil), data...)
}

func TestUnknownIsSkipped(t *testing.T) {
	payload := []byte{200, 5, 1, 2}                                              // a kind of a later version with two fields
	payload = append(payload, uint8(event.KindArm))                              // and an event of
	payload = binary.AppendUvarint(payload, 1|1<<63)                             // a known kind with a field
	payload = binary.AppendUvarint(binary.AppendUvarint(payload, zigzag(42)), 9) // it doesn't know
	b := fileHeader()
	b = append(b, chunkOf(0, 77, []byte("of a later version"), 18)...)
	b = append(b, stored(chunkHeader{sequence: 1, typ: 78, flags: 0xff}, []byte("not even zstd"))...)
	b = append(b, chunkOf(2, chunkEvents, payload, uint32(len(payload)))...)
	b = append(b, chunkOf(3, chunkContext, []byte(`{"Tool":"later","Unknown":[1]}`), 30)...)
	b = append(b, chunkOf(4, chunkEnd, []byte{2}, 1)...) // of both events
	// What is left out is as predicted: Begin is Time, Call the previous one's plus 1.
	want := event.Event{Kind: event.KindArm, Time: 42, Verb: event.Verb{Begin: 42, Call: 1}}
	wantWhole(t, b, []event.Event{want}, &event.Context{Tool: "later"})
}

func TestHostile(t *testing.T) {
	events := func(payload ...byte) []byte { return chunkOf(0, chunkEvents, payload, uint32(len(payload))) }
	all := binary.AppendUvarint(nil, 1<<7|1<<12) // bits of two names of a switch
	for name, chunk := range map[string][]byte{
		"stored length":       stored(chunkHeader{size: 1, typ: 99}, nil)[:8],
		"chunk out of order":  chunkOf(1, chunkEvents, nil, 0),
		"size over limit":     chunkOf(0, chunkEvents, nil, maxEventChunk+1),
		"size too small":      chunkOf(0, chunkEvents, make([]byte, 1000), 10),
		"size too large":      chunkOf(0, chunkContext, []byte("{}"), maxContext),
		"unknown flags":       stored(chunkHeader{typ: chunkEvents, flags: 3}, nil),
		"not zstd":            stored(chunkHeader{typ: chunkEvents, flags: flagZstd, size: 4}, []byte("abcd")),
		"context not JSON":    chunkOf(0, chunkContext, []byte("{"), 1),
		"context wrong type":  chunkOf(0, chunkContext, []byte(`{"Tool":1}`), 10),
		"name too long":       events(nameRecord, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"name past the end":   events(nameRecord, 5, 'a'),
		"mask cut off":        events(uint8(event.KindArm), 0x80),
		"value cut off":       events(uint8(event.KindArm), 1),
		"varint overflow":     events(uint8(event.KindArm), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"name never given":    events(append([]byte{uint8(event.KindSwitch)}, append(binary.AppendUvarint(nil, 1<<12), 9)...)...),
		"object not given":    events(uint8(event.KindQP), 0),
		"object not JSON":     events(nameRecord, 1, 'x', uint8(event.KindQP), 1<<5, 1),
		"object of other":     events(append(append([]byte{nameRecord, 9}, `{"CQ":{}}`...), uint8(event.KindQP), 1<<5, 1)...),
		"name too wide":       events(append(append([]byte{nameRecord, 17}, make([]byte, 17)...), append(append([]byte{uint8(event.KindSwitch)}, all...), 1, 1)...)...),
		"count at end":        chunkOf(0, chunkEnd, []byte{3}, 1),
		"count at end absent": chunkOf(0, chunkEnd, []byte{0x80}, 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, r, err := read(append(fileHeader(), chunk...))
			if _, ok := errors.AsType[*CorruptError](err); !ok && (r == nil || !r.Cut()) {
				if name == "count at end absent" && err == nil {
					return // a count of 0
				}
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNotACapture(t *testing.T) {
	for version, want := range map[uint32]any{Version + 1: new(*VersionError), 0: new(*CorruptError)} {
		h := fileHeader()
		binary.LittleEndian.PutUint32(h[8:], version)
		binary.LittleEndian.PutUint32(h[12:], crc32.Checksum(h[:12], crcTable))
		if _, _, err := read(h); !errors.As(err, want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("#!/bin/sh\necho no\n"), "short": []byte(magic[:5])} {
		if _, _, err := read(b); !errors.Is(err, NotCaptureError{}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mangled := bytes.ReplaceAll(fileHeader(), []byte("\n"), []byte("\r\n"))
	if _, _, err := read(mangled); err == nil {
		t.Error("line ends changed: no error")
	}
	if _, err := NewReader(io.MultiReader(bytes.NewReader(fileHeader()[:9]), badReader{})); !errors.Is(err, errFull) {
		t.Errorf("read error: %v", err)
	}
	if _, err := NewReader(io.MultiReader(bytes.NewReader(fileHeader()), badReader{})); !errors.Is(err, errFull) {
		t.Errorf("read error: %v", err)
	}
}

type badReader struct{}

func (badReader) Read([]byte) (int, error) { return 0, errFull }

// A length in a short file must not make the reader allocate that much.
func TestLengthAllocatesNothing(t *testing.T) {
	h := chunkHeader{typ: 99, stored: maxStored}
	b := h.append(fileHeader())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, r, err := read(b); err != nil || !r.Cut() {
		t.Fatalf("%v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes allocated for a file of %d", n, len(b))
	}
}

func FuzzReader(f *testing.F) {
	whole, _ := small(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(write(f, sample(), nil, sampleContext()))
	f.Add(fileHeader())
	f.Fuzz(func(t *testing.T, b []byte) {
		events, r, err := read(b)
		if err == nil && r == nil {
			t.Fatal("no reader and no error")
		}
		for i := range events {
			if events[i].Kind == 0 || int(events[i].Kind) >= event.Kinds {
				t.Fatalf("event %d of kind %d", i, events[i].Kind)
			}
		}
	})
}

// FuzzEvents skips compression and checksum, which hide the decoder from a fuzzer.
// What was decoded is written and read again without a difference.
func FuzzEvents(f *testing.F) {
	enc := newEncoder()
	for _, e := range sample() {
		if err := enc.encode(&e); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(bytes.Clone(enc.buf))
	f.Add([]byte{nameRecord, 1, 'x', uint8(event.KindSwitch), 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		d := newDecoder()
		d.reset(b)
		var events []event.Event
		for {
			var e event.Event
			ok, err := d.next(&e)
			if !ok || err != nil {
				break
			}
			if e.Object != nil {
				e.Object = clean(e.Object)
			}
			events = append(events, e)
		}
		wantWhole(t, write(t, events, nil, &event.Context{}), events, &event.Context{})
	})
}
