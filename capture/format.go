// Package capture reads and writes capture files: the raw events of a trace
// and the context they were taken in, for analysis later and elsewhere.
//
// The format is described in docs/capture-format.md. A file is a header and a
// row of chunks, each compressed and checksummed on its own, so a file that was
// cut off gives back everything of its whole chunks. The package is pure: it
// sees an io.Writer or an io.Reader and no operating system.
package capture

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Version of the format this package writes, and the newest it reads. It is
// raised only by a change that older readers cannot skip: new chunk types, new
// kinds of event and new fields of an event leave it alone.
const Version = 1

// magic begins every file. Its first byte is not ASCII and its last is a line
// end, so a file that was mangled as text is recognised.
const magic = "\x93rdmatr\n"

// chunkType says what a chunk's payload is. Unknown ones are skipped.
type chunkType uint8

const (
	chunkEvents  chunkType = 1 // encoded events
	chunkContext chunkType = 2 // an event.Context as JSON; the last one counts
	chunkEnd     chunkType = 3 // end: the file is whole
)

// Sizes and limits, in bytes. The limits hold for both sides: a length read
// from a file is compared with them before anything of that size is allocated.
const (
	fileHeaderSize  = 16
	chunkHeaderSize = 24

	// eventChunkSize is where the writer ends a chunk of events. Larger chunks
	// compress little better; smaller ones lose less when a file is cut.
	eventChunkSize = 256 << 10
	maxEventChunk  = 1 << 20
	// maxObject bounds the JSON of one object, far above what any needs.
	maxObject = 64 << 10
	// maxContext bounds a context: stacks with symbols of a large job are a few MiB.
	maxContext = 32 << 20
	// maxStored bounds any chunk as it lies in the file, unknown types included.
	maxStored = maxContext
)

// chunkSpan is the time between the first and the last event of a chunk, ns:
// what a recorder that dies may lose.
const chunkSpan = 1_000_000_000

// flagZstd: the payload is one zstd frame.
const flagZstd = 1

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// fileHeader: magic, version, crc32c of both.
func fileHeader() []byte {
	h := append(make([]byte, 0, fileHeaderSize), magic...)
	h = binary.LittleEndian.AppendUint32(h, Version)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, crcTable))
}

// chunkHeader is, in the file and in this order, little endian: sequence u32,
// type u8, flags u8, zero u16, stored u32, size u32, zero u32, crc u32.
type chunkHeader struct {
	sequence uint32 // counts the file's chunks from 0: a missing one shows
	typ      chunkType
	flags    uint8
	stored   uint32 // length of the payload in the file
	size     uint32 // length of the payload once decompressed
	crc      uint32 // crc32c of the header before it and the stored payload
}

func (h *chunkHeader) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.sequence)
	b = append(b, uint8(h.typ), h.flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.stored)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, h.crc)
}

func (h *chunkHeader) parse(b []byte) {
	h.sequence = binary.LittleEndian.Uint32(b)
	h.typ = chunkType(b[4])
	h.flags = b[5]
	h.stored = binary.LittleEndian.Uint32(b[8:])
	h.size = binary.LittleEndian.Uint32(b[12:])
	h.crc = binary.LittleEndian.Uint32(b[20:])
}

// limit of a chunk's decompressed size, by type.
func (t chunkType) limit() uint32 {
	switch t {
	case chunkEvents:
		return maxEventChunk
	case chunkContext:
		return maxContext
	}
	return maxStored
}

// CorruptError says that a file is not, or no longer, what a writer wrote.
// Events returned before it are good.
type CorruptError struct {
	Offset int64 // of the chunk, or of the file header, in bytes
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("capture file is damaged at byte %d: %s", e.Offset, e.Reason)
}

// VersionError says that a file was written in a later format.
type VersionError struct{ Version uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("capture file has format version %d; this rdmatrace reads up to %d: use a newer one", e.Version, Version)
}

// NotCaptureError says that the input does not begin as a capture file does.
type NotCaptureError struct{}

func (NotCaptureError) Error() string { return "not an rdmatrace capture file" }
