package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// A made-up file: its code at codeAt, .eh_frame at frameAt, .eh_frame_hdr at
// headerAt, all at the same offsets in the file; and where it is mapped.
const (
	codeAt   = 0x1000
	codeSize = 0x1000
	plainAt  = 0x1f00 // code that no call frame information covers
	frameAt  = 0x2000
	headerAt = 0x6000
	namesAt  = 0x7000
	tableAt  = 0x7100
	fileSize = 0x8000
	mappedAt = 0x555500001000
)

// addr of a virtual address of the file, in the target.
func addr(vaddr uint64) uint64 { return mappedAt + vaddr - codeAt }

// madeFile makes an ELF file of the bytes of its .eh_frame and .eh_frame_hdr;
// without the latter there is no PT_GNU_EH_FRAME. Its code is of no matter but at plainAt.
func madeFile(t testing.TB, frame, header []byte, plain ...byte) *image.File {
	t.Helper()
	b := make([]byte, fileSize)
	put := func(at int, v any) {
		var buf bytes.Buffer
		if err := binary.Write(&buf, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
		copy(b[at:], buf.Bytes())
	}
	progs := []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: fileSize, Memsz: fileSize}}
	if header != nil {
		progs = append(progs, elf.Prog64{
			Type: uint32(elf.PT_GNU_EH_FRAME), Off: headerAt, Vaddr: headerAt, Filesz: uint64(len(header)),
		})
	}
	names := "\x00.shstrtab\x00.eh_frame\x00"
	put(0, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Shoff: tableAt, Ehsize: 64,
		Phentsize: 56, Phnum: uint16(len(progs)), Shentsize: 64, Shnum: 3, Shstrndx: 1,
	})
	put(64, progs)
	put(tableAt, []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		{Name: 11, Type: uint32(elf.SHT_PROGBITS), Addr: frameAt, Off: frameAt, Size: min(uint64(len(frame)), headerAt-frameAt)},
	})
	copy(b[plainAt:], plain)
	copy(b[namesAt:], names)
	copy(b[frameAt:headerAt], frame)
	copy(b[headerAt:namesAt], header)
	f, err := image.NewFile(bytes.NewReader(b), "/made/up.so")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// function of a made-up file.
type function struct {
	begin, size uint64
	program     []byte
	signal      bool
}

// writer appends records to .eh_frame.
type writer struct {
	b    []byte
	fdes []uint64 // addresses
}

func (w *writer) record(body []byte) {
	for len(body)%4 != 0 {
		body = append(body, cfaNop)
	}
	w.b = binary.LittleEndian.AppendUint32(w.b, uint32(len(body)))
	w.b = append(w.b, body...)
}

// cieOf appends a CIE as gcc has it: code factor 1, data factor -8, pcrel|sdata4.
func (w *writer) cieOf(returnReg byte, augmentation string, initial []byte) (at uint64) {
	at = uint64(len(w.b))
	body := []byte{0, 0, 0, 0, 1}
	body = append(body, augmentation...)
	body = append(body, 0, 1, 0x78, returnReg, 1, encPCRel|encS4)
	w.record(append(body, initial...))
	return at
}

func (w *writer) fdeOf(cie uint64, f function) {
	at := uint64(len(w.b))
	w.fdes = append(w.fdes, frameAt+at)
	body := binary.LittleEndian.AppendUint32(nil, uint32(at+4-cie))
	body = binary.LittleEndian.AppendUint32(body, uint32(f.begin-(frameAt+at+8)))
	body = binary.LittleEndian.AppendUint32(body, uint32(f.size))
	body = append(body, 0)
	w.record(append(body, f.program...))
}

// frames makes .eh_frame and its header for functions in ascending order.
func frames(a *arch, functions []function) (frame, header []byte) {
	returnReg, initial := byte(16), []byte{cfaDef, 7, 8, 0x80 | 16, 1}
	if !a.callPushes {
		returnReg, initial = 30, []byte{cfaDef, 31, 0}
	}
	var w writer
	plain := w.cieOf(returnReg, "zR", initial)
	signal := w.cieOf(returnReg, "zRS", initial)
	header = []byte{1, encPCRel | encS4, encU4, pairEncoding}
	header = binary.LittleEndian.AppendUint32(header, uint32((frameAt-headerAt-4)&0xffffffff))
	header = binary.LittleEndian.AppendUint32(header, uint32(len(functions)))
	for _, f := range functions {
		cie := plain
		if f.signal {
			cie = signal
		}
		w.fdeOf(cie, f)
		at := w.fdes[len(w.fdes)-1]
		header = binary.LittleEndian.AppendUint32(header, uint32(int64(f.begin)-headerAt))
		header = binary.LittleEndian.AppendUint32(header, uint32(int64(at)-headerAt))
	}
	return append(w.b, 0, 0, 0, 0), header
}

// spaceOf maps a file at mappedAt, with regions of other kinds above.
func spaceOf(f *image.File, more ...image.Region) *image.Space {
	code := image.Region{File: f, Mapping: image.Mapping{
		Start: mappedAt, End: mappedAt + codeSize, Offset: codeAt, Inode: 1, Exec: true, Path: "/made/up.so",
	}}
	return image.NewSpace(1, append([]image.Region{code}, more...))
}

// stackOf lays 64-bit words out as stack memory.
func stackOf(words ...uint64) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}
