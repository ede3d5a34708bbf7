package calibrate

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/again"
)

// program is a program of a few instructions. It reads 16 bytes from standard
// input - a count (four bytes, four unused) and the address of a function -,
// takes CLOCK_THREAD_CPUTIME_ID, calls the function count times, takes the clock
// again and writes both times, as two timespecs, to standard output; it ends
// with its input. That clock stops while something else has the CPU. Return probes on Go code are dangerous (they write into movable
// stacks), and a C compiler is not at hand: hence machine code.
type program struct {
	machine elf.Machine
	code    []byte
	// Functions that do the same and that are called alike, by their offset in
	// code. In emulated ones the kernel emulates the first instruction, in
	// stepped ones it has to single-step it.
	emulated, stepped [variants]int
}

// The variants of a function: what is attached to it.
const (
	bare = iota
	entry
	pair
	variants
)

// words makes code of 32-bit instructions.
func words(w ...uint32) []byte {
	var b []byte
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// functions appends three copies of each kind of function to the code.
func (p program) functions(align int, emulated, stepped []byte) program {
	for v := range variants {
		for _, f := range []struct {
			code []byte
			at   *[variants]int
		}{{emulated, &p.emulated}, {stepped, &p.stepped}} {
			for len(p.code)%align != 0 {
				p.code = append(p.code, 0)
			}
			f.at[v] = len(p.code)
			p.code = append(p.code, f.code...)
		}
	}
	return p
}

// The program in memory: one segment, the code after the headers.
const (
	loadAddress = 0x400000
	codeOffset  = 64 + 56 + 8 // Elf64_Ehdr, one Elf64_Phdr, to a multiple of 16
)

// image is the ELF file.
func (p program) image() []byte {
	var b bytes.Buffer
	size := uint64(codeOffset + len(p.code))
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(p.machine), Version: uint32(elf.EV_CURRENT),
		Entry: loadAddress + codeOffset, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	seg := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: loadAddress, Paddr: loadAddress, Filesz: size, Memsz: size, Align: 0x10000,
	}
	binary.Write(&b, binary.LittleEndian, head) // a Buffer takes everything
	binary.Write(&b, binary.LittleEndian, seg)
	b.Write(make([]byte, codeOffset-b.Len()))
	b.Write(p.code)
	return b.Bytes()
}

// child is the running program.
type child struct {
	program program
	file    *os.File // a memfd: nothing is left behind on a disk
	path    string
	cmd     *exec.Cmd
	in      *os.File
	out     *os.File
}

// startChild starts the program. It ends with ctx, with stop, or when this
// process ends.
func startChild(ctx context.Context) (*child, error) { return startProgram(ctx, "") }

// startProgram starts it by this same program under another name, unless that
// is empty.
func startProgram(ctx context.Context, by string) (*child, error) {
	p, ok := programs[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no calibration program for %s", runtime.GOARCH)
	}
	fd, err := unix.MemfdCreate("rdmatrace-calibrate", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // MFD_EXEC is new in 6.3
		fd, err = unix.MemfdCreate("rdmatrace-calibrate", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("create the calibration program: %w", err)
	}
	c := &child{program: p, file: os.NewFile(uintptr(fd), "rdmatrace-calibrate")}
	c.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	if _, err := c.file.Write(p.image()); err != nil {
		c.stop()
		return nil, fmt.Errorf("write the calibration program: %w", err)
	}
	if err := c.start(ctx, by); err != nil {
		c.stop()
		return nil, fmt.Errorf("start the calibration program: %w", err)
	}
	return c, nil
}

func (c *child) start(ctx context.Context, by string) error {
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	c.in = in
	out, stdout, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdout.Close()
	c.out = out
	cmd := exec.CommandContext(ctx, c.path)
	if by != "" {
		cmd = again.Command(ctx, by, c.path)
	}
	cmd.Stdin, cmd.Stdout = stdin, stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd = cmd
	if deadline, ok := ctx.Deadline(); ok {
		return errors.Join(c.in.SetDeadline(deadline), c.out.SetDeadline(deadline))
	}
	return nil
}

// run calls the function at an offset of the code count times and returns how
// much CPU time that took.
func (c *child) run(offset int, count uint32) (time.Duration, error) {
	var request [16]byte
	binary.LittleEndian.PutUint32(request[:], count)
	binary.LittleEndian.PutUint64(request[8:], uint64(loadAddress+codeOffset+offset))
	if _, err := c.in.Write(request[:]); err != nil {
		return 0, fmt.Errorf("run the calibration program: %w", err)
	}
	var answer [4]int64 // two struct timespec
	if err := binary.Read(c.out, binary.LittleEndian, &answer); err != nil {
		if errors.Is(err, io.EOF) {
			err = errKilled
		}
		return 0, fmt.Errorf("run the calibration program: %w", err)
	}
	return time.Duration((answer[2]-answer[0])*1e9 + answer[3] - answer[1]), nil
}

var errKilled = errors.New("it was killed")

// stop ends the program and frees what belongs to it.
func (c *child) stop() {
	for _, f := range []*os.File{c.in, c.out, c.file} {
		if f != nil {
			f.Close()
		}
	}
	if c.cmd != nil {
		c.cmd.Process.Kill()
		c.cmd.Wait() // it was killed, and says so
	}
}
