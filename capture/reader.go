package capture

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/rdmatrace/rdmatrace/event"
)

// Reader reads a capture file. It is not safe for concurrent use.
type Reader struct {
	r        io.Reader
	offset   int64 // of the chunk under way
	sequence uint32
	zstd     *zstd.Decoder
	header   [chunkHeaderSize]byte
	stored   bytes.Buffer
	payload  []byte

	dec    *decoder
	events uint64
	ctx    *event.Context
	err    error // what Next goes on to return
	cut    bool
}

// NewReader reads the header and, where it comes first as a Writer's user
// should see to, the preliminary context. Errors are NotCaptureError,
// *VersionError, *CorruptError and those of r.
func NewReader(r io.Reader) (*Reader, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxContext), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("set up decompression: %w", err)
	}
	rd := &Reader{r: r, zstd: z, dec: newDecoder()}
	if err := rd.readFileHeader(); err != nil {
		return nil, err
	}
	for rd.err == nil && rd.ctx == nil && len(rd.dec.data) == 0 {
		rd.readChunk()
	}
	if _, ok := errors.AsType[*CorruptError](rd.err); ok || rd.err == nil || rd.err == io.EOF {
		return rd, nil // Next says so, after what came before it
	}
	return nil, rd.err
}

func (r *Reader) readFileHeader() error {
	var h [fileHeaderSize]byte
	n, err := io.ReadFull(r.r, h[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("read capture header: %w", err)
	}
	if n < len(magic) || string(h[:len(magic)]) != magic {
		return NotCaptureError{}
	}
	if n < len(h) {
		return &CorruptError{0, "the header is cut off"}
	}
	if crc32.Checksum(h[:12], crcTable) != binary.LittleEndian.Uint32(h[12:]) {
		return &CorruptError{0, "the header's checksum is wrong"}
	}
	switch v := binary.LittleEndian.Uint32(h[8:]); {
	case v == 0:
		return &CorruptError{0, "there is no format version 0"}
	case v > Version:
		return &VersionError{v}
	}
	r.offset = fileHeaderSize
	return nil
}

// Next reads the next event into e. At the end it returns io.EOF: see Cut. A
// *CorruptError, once returned, is returned again; the events before it are good.
func (r *Reader) Next(e *event.Event) error {
	for {
		ok, err := r.dec.next(e)
		if ok {
			r.events++
			return nil
		}
		if err != nil {
			// The checksum was right: whoever wrote this was no Writer.
			r.corrupt("events: " + err.Error())
			r.dec.reset(nil)
		}
		if r.err != nil {
			return r.err
		}
		r.readChunk()
	}
}

// Context is the last context read so far, nil before the first. After io.EOF
// it is the one given to Writer.Close or, in a file that was cut off, the last
// preliminary one.
func (r *Reader) Context() *event.Context { return r.ctx }

// Cut reports, after io.EOF, that the file ends without its end chunk: its
// writer died or a copy was not finished. What was returned is whole and true,
// but there was more.
func (r *Reader) Cut() bool { return r.cut }

func (r *Reader) corrupt(reason string) { r.err = &CorruptError{r.offset, reason} }

// readChunk reads a chunk and acts on it, or sets err.
func (r *Reader) readChunk() {
	h, ok := r.readStored()
	if !ok {
		return
	}
	switch h.typ {
	case chunkEvents:
		if r.decompress(h) {
			r.dec.reset(r.payload)
		}
	case chunkContext:
		if !r.decompress(h) {
			return
		}
		ctx := new(event.Context)
		if err := json.Unmarshal(r.payload, ctx); err != nil {
			r.corrupt("context: " + err.Error())
			return
		}
		r.ctx = ctx
	case chunkEnd:
		if r.decompress(h) {
			r.end()
		}
	}
	if r.err == nil {
		r.offset += chunkHeaderSize + int64(h.stored)
	}
}

// end checks the count of events, which tells of a chunk that was taken out.
func (r *Reader) end() {
	r.err = io.EOF
	if n, _ := binary.Uvarint(r.payload); n != r.events+r.dec.skipped {
		r.corrupt(fmt.Sprintf("%d events, where its end says %d", r.events+r.dec.skipped, n))
	}
}

// readStored reads a chunk's header and its payload as stored, and checks both.
func (r *Reader) readStored() (h chunkHeader, ok bool) {
	if !r.read(func() (int64, error) {
		n, err := io.ReadFull(r.r, r.header[:])
		return int64(n), err
	}, chunkHeaderSize) {
		return h, false
	}
	h.parse(r.header[:])
	if h.sequence != r.sequence {
		r.corrupt(fmt.Sprintf("chunk %d stands where chunk %d belongs", h.sequence, r.sequence))
		return h, false
	}
	if h.stored > maxStored || h.size > h.typ.limit() {
		r.corrupt("a chunk's length exceeds the format's limit")
		return h, false
	}
	// The buffer grows with what is there: a length alone allocates nothing.
	r.stored.Reset()
	if !r.read(func() (int64, error) { return io.CopyN(&r.stored, r.r, int64(h.stored)) }, int64(h.stored)) {
		return h, false
	}
	crc := crc32.Checksum(r.header[:chunkHeaderSize-4], crcTable)
	if crc32.Update(crc, crcTable, r.stored.Bytes()) != h.crc {
		r.corrupt("a chunk's checksum is wrong")
		return h, false
	}
	r.sequence++
	return h, true
}

// read does one read of want bytes; the input's end makes the file a cut one.
func (r *Reader) read(do func() (int64, error), want int64) bool {
	n, err := do()
	switch {
	case n == want:
		return true
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		r.cut, r.err = true, io.EOF
	default:
		r.err = fmt.Errorf("read capture file at byte %d: %w", r.offset, err)
	}
	return false
}

// decompress sets payload. DecodeAll keeps to the capacity it is given, which
// is the size the header names and limit has bounded.
func (r *Reader) decompress(h chunkHeader) bool {
	if h.flags != flagZstd {
		r.corrupt(fmt.Sprintf("unknown flags %#x", h.flags))
		return false
	}
	if cap(r.payload) < int(h.size) {
		r.payload = make([]byte, 0, h.size)
	}
	b, err := r.zstd.DecodeAll(r.stored.Bytes(), r.payload[:0:h.size])
	if err != nil {
		r.corrupt("decompress: " + err.Error())
		return false
	}
	if len(b) != int(h.size) {
		r.corrupt(fmt.Sprintf("decompressed to %d bytes instead of %d", len(b), h.size))
		return false
	}
	r.payload = b
	return true
}
