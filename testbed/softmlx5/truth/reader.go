package truth

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

const header = "kind,pid,qpn,cqn,wqe,opcode,bytes,flags,batch,t_doorbell,t_wire," +
	"t_arrive_due,t_arrive,t_cqe_due,t_cqe,injected_ns,cqe_index"

const columns = 17

// maxLine is far above the longest line the device writes.
const maxLine = 4096

// Reader reads a truth log row by row, in memory that does not grow with it.
type Reader struct {
	r       *bufio.Reader
	line    int
	cut     bool
	opcodes map[string]string // one string for each name
	last    map[Queue]uint64  // Index of the row before
}

// NewReader reads the header; the error says when this is no truth log.
// A log that is still empty, because the device has only just started, is
// reported as io.ErrUnexpectedEOF.
func NewReader(r io.Reader) (*Reader, error) {
	t := &Reader{
		r:       bufio.NewReaderSize(r, 1<<16),
		opcodes: make(map[string]string),
		last:    make(map[Queue]uint64),
	}
	line, err := t.readLine()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("read the header of the truth log: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	case string(line) != header:
		return nil, fmt.Errorf("not a truth log: its first line is %.80q", line)
	}
	return t, nil
}

// Next returns the next row, io.EOF behind the last whole one. Other errors
// name the line.
func (t *Reader) Next() (Row, error) {
	line, err := t.readLine()
	if err != nil {
		return Row{}, err
	}
	row, err := t.parse(line)
	if err != nil {
		return Row{}, fmt.Errorf("truth log, line %d: %w", t.line, err)
	}
	t.unwrap(&row)
	return row, nil
}

// Cut reports whether the log ended in the middle of a line, which was left
// out: the device still has the rest in its buffer.
func (t *Reader) Cut() bool { return t.cut }

// readLine returns a line without its newline, valid until the next call.
func (t *Reader) readLine() ([]byte, error) {
	line, err := t.r.ReadSlice('\n')
	t.line++
	switch {
	case errors.Is(err, io.EOF):
		t.cut = t.cut || len(line) > 0
		return nil, io.EOF
	case errors.Is(err, bufio.ErrBufferFull) || err == nil && len(line) > maxLine:
		return nil, fmt.Errorf("truth log, line %d: longer than %d bytes", t.line, maxLine)
	case err != nil:
		return nil, fmt.Errorf("read the truth log, line %d: %w", t.line, err)
	}
	return line[:len(line)-1], nil
}

// fields takes the columns of a line one by one and keeps the first error.
type fields struct {
	rest  []byte
	count int
	err   error
}

func (f *fields) next() []byte {
	field, rest, more := bytes.Cut(f.rest, []byte{','})
	f.count++
	if !more && f.count < columns && f.err == nil {
		f.err = fmt.Errorf("%d columns, expected %d", f.count, columns)
	}
	f.rest = rest
	return field
}

func (f *fields) number(bits int) int64 {
	field := f.next()
	if f.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(field), 10, bits)
	if err != nil {
		f.err = fmt.Errorf("column %d: %w", f.count, err)
	}
	return n
}

func (f *fields) uint32() uint32 {
	n := f.number(64)
	if f.err == nil && n != int64(uint32(n)) {
		f.err = fmt.Errorf("column %d: %d is out of range", f.count, n)
	}
	return uint32(n)
}

func (f *fields) flags() Flags {
	var flags Flags
	field := f.next()
	if string(field) == "-" {
		return 0
	}
	for _, c := range field {
		i := strings.IndexByte(flagLetters, c)
		if i < 0 {
			f.err = errors.Join(f.err, fmt.Errorf("column %d: unknown flag %q", f.count, c))
			return 0
		}
		flags |= 1 << i
	}
	return flags
}

func (t *Reader) parse(line []byte) (Row, error) {
	f := fields{rest: line}
	var r Row
	if kind := f.next(); len(kind) == 1 && bytes.IndexByte([]byte("SRE"), kind[0]) >= 0 {
		r.Kind = Kind(kind[0])
	} else {
		return Row{}, fmt.Errorf("unknown kind %.16q", kind)
	}
	r.PID = int(f.number(32))
	r.QPN = f.uint32()
	r.CQN = f.uint32()
	r.WQE = f.uint32()
	r.Opcode = t.opcode(f.next())
	r.Bytes = f.uint32()
	r.Flags = f.flags()
	r.Batch = f.uint32()
	for _, to := range []*int64{&r.Doorbell, &r.Wire, &r.ArriveDue, &r.Arrive, &r.CQEDue,
		&r.CQE, &r.Injected, &r.CQEIndex} {
		*to = f.number(64)
	}
	if f.err == nil && f.rest != nil {
		f.err = fmt.Errorf("more than %d columns", columns)
	}
	return r, f.err
}

func (t *Reader) opcode(name []byte) string {
	if s, ok := t.opcodes[string(name)]; ok {
		return s
	}
	s := string(name)
	t.opcodes[s] = s
	return s
}

// unwrap sets Index. A queue's rows come in order, so the 16 bits of WQE only
// ever move forward.
func (t *Reader) unwrap(r *Row) {
	if r.Kind == Event || r.Flags.Has(SharedQueue) {
		return
	}
	q := r.Queue()
	if last, seen := t.last[q]; seen {
		r.Index = last + uint64(uint16(r.WQE)-uint16(last))
	} else {
		r.Index = uint64(uint16(r.WQE))
	}
	t.last[q] = r.Index
}

// ReadFile returns all whole rows of the log at path.
func ReadFile(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the truth log: %w", err)
	}
	defer f.Close()
	r, err := NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var rows []Row
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rows = append(rows, row)
	}
}
