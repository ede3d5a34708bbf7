package capture

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/rdmatrace/rdmatrace/event"
)

// Writer writes a capture file. It is not safe for concurrent use.
type Writer struct {
	w        io.Writer
	err      error // of an earlier write, or that it is closed
	zstd     *zstd.Encoder
	out      []byte // the chunk as it goes to w
	sequence uint32
	events   uint64 // of the whole file

	enc    *encoder
	inside uint64 // events in enc
	first  uint64 // time of its first event
}

// NewWriter writes the file's header to w, which should not be slow: it gets a
// chunk of up to 1 MiB at a time, from within Write.
func NewWriter(w io.Writer) (*Writer, error) {
	// One goroutine and a window of a chunk: memory stays below 4 MiB.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(eventChunkSize), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("set up compression: %w", err)
	}
	if _, err := w.Write(fileHeader()); err != nil {
		return nil, fmt.Errorf("write capture header: %w", err)
	}
	return &Writer{w: w, zstd: z, enc: newEncoder()}, nil
}

// Write appends an event. Only the parts that its Kind sets are kept. After an
// error that of w is returned again and nothing more is written.
func (w *Writer) Write(e *event.Event) error {
	if w.err != nil {
		return w.err
	}
	if w.inside > 0 && (len(w.enc.buf) >= eventChunkSize || e.Time > w.first && e.Time-w.first >= chunkSpan) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := w.enc.encode(e); err != nil {
		return err
	}
	if w.inside == 0 {
		w.first = e.Time
	}
	w.inside++
	w.events++
	return nil
}

// WriteContext writes what is known of the context so far. A file that is cut
// off later has this one; otherwise the one given to Close counts.
func (w *Writer) WriteContext(ctx *event.Context) error {
	if err := w.flush(); err != nil {
		return err
	}
	b, err := encodeContext(CleanContext(ctx))
	if err != nil {
		return err
	}
	return w.chunk(chunkContext, b)
}

// encodeContext makes JSON of at most maxContext bytes. Where the stacks of very
// many sites exceed that, some are left out, as a note says: a trace that has
// ended cannot be repeated. It changes c.
func encodeContext(c *event.Context) ([]byte, error) {
	stacks, notes := len(c.Stacks), slices.Clip(c.Notes)
	for {
		b, err := json.Marshal(c)
		switch {
		case err != nil:
			return nil, fmt.Errorf("encode context: %w", err)
		case len(b) <= maxContext:
			return b, nil
		case len(c.Stacks) == 0:
			return nil, fmt.Errorf("encode context: %d bytes exceed the format's limit of %d", len(b), maxContext)
		}
		c.Stacks = c.Stacks[:len(c.Stacks)/2]
		c.Notes = append(notes, fmt.Sprintf("%d of %d stacks are not in the capture file: they exceed its limit", stacks-len(c.Stacks), stacks))
	}
}

// Close writes the final context and the file's end. It does not close the
// underlying writer. A Writer that is not closed leaves a file that reads as cut off.
func (w *Writer) Close(ctx *event.Context) error {
	if err := w.WriteContext(ctx); err != nil {
		return err
	}
	if err := w.chunk(chunkEnd, binary.AppendUvarint(nil, w.events)); err != nil {
		return err
	}
	w.err = errors.New("capture writer is closed")
	return w.zstd.Close()
}

// flush ends the chunk of events under way.
func (w *Writer) flush() error {
	if w.err != nil || w.inside == 0 {
		return w.err
	}
	err := w.chunk(chunkEvents, w.enc.buf)
	w.enc.reset()
	w.inside = 0
	return err
}

func (w *Writer) chunk(typ chunkType, payload []byte) error {
	if w.err != nil {
		return w.err
	}
	h := chunkHeader{sequence: w.sequence, typ: typ, flags: flagZstd, size: uint32(len(payload))}
	w.sequence++
	w.out = append(w.out[:0], make([]byte, chunkHeaderSize)...)
	w.out = w.zstd.EncodeAll(payload, w.out)
	h.stored = uint32(len(w.out) - chunkHeaderSize)
	h.append(w.out[:0])
	crc := crc32.Checksum(w.out[:chunkHeaderSize-4], crcTable)
	h.crc = crc32.Update(crc, crcTable, w.out[chunkHeaderSize:])
	h.append(w.out[:0])
	if _, err := w.w.Write(w.out); err != nil {
		w.err = fmt.Errorf("write capture chunk %d: %w", h.sequence, err)
	}
	return w.err
}
