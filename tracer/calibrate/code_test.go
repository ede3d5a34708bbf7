package calibrate

import (
	"bytes"
	"debug/elf"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

// instruction as a disassembler sees it.
type instruction struct {
	at     int
	text   string
	target int // of a jump, else -1
}

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa} // x86asm does not know it

func decodeAMD64(code []byte, at int) (instruction, int, error) {
	if bytes.HasPrefix(code[at:], endbr64) {
		return instruction{at, "endbr64", -1}, 4, nil
	}
	i, err := x86asm.Decode(code[at:], 64)
	ins := instruction{at, x86asm.IntelSyntax(i, 0, nil), -1}
	if rel, ok := i.Args[0].(x86asm.Rel); ok {
		ins.target = at + i.Len + int(rel)
	}
	return ins, i.Len, err
}

func decodeARM64(code []byte, at int) (instruction, int, error) {
	i, err := arm64asm.Decode(code[at:])
	ins := instruction{at, i.String(), -1}
	for _, a := range i.Args {
		if rel, ok := a.(arm64asm.PCRel); ok {
			ins.target = at + int(rel)
		}
	}
	return ins, 4, err
}

var decoders = map[string]func([]byte, int) (instruction, int, error){"amd64": decodeAMD64, "arm64": decodeARM64}

// commented is a line of code.go: bytes, what they are, and the label a jump
// goes to.
var commented = regexp.MustCompile(`0x[0-9a-f, x]+//\s+(.*)`)

// The comments of code.go must say what the bytes are, and jumps must lead to
// the labels they name.
func TestCodeIsWhatItSays(t *testing.T) {
	source, err := os.ReadFile("code.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), `"amd64":`)
	amd64, arm64, _ := strings.Cut(rest, `"arm64":`)
	for arch, text := range map[string]string{"amd64": amd64, "arm64": arm64} {
		t.Run(arch, func(t *testing.T) {
			p := programs[arch]
			main, functions, _ := strings.Cut(text, ".functions(")
			check(t, arch, main, p.code[:p.emulated[bare]])
			emulated, stepped, _ := strings.Cut(functions, "),\n")
			if arch == "amd64" {
				emulated, stepped, _ = strings.Cut(functions, "},\n")
			}
			for v := range variants {
				check(t, arch, emulated, p.code[p.emulated[v]:p.stepped[v]])
				end := len(p.code)
				if v+1 < variants {
					end = p.emulated[v+1]
				}
				check(t, arch, stepped, p.code[p.stepped[v]:end])
			}
		})
	}
}

// check compares code, which may be followed by padding, with its listing.
func check(t *testing.T, arch, listing string, code []byte) {
	t.Helper()
	labels := map[string]int{}
	jumps := map[string]int{}
	at, n := 0, 0
	for _, line := range strings.Split(listing, "\n") {
		line = strings.TrimSpace(line)
		if label, ok := strings.CutPrefix(line, "// "); ok {
			labels[strings.TrimSuffix(label, ":")] = at
			continue
		}
		m := commented.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		ins, size, err := decoders[arch](code, at)
		if err != nil {
			t.Fatalf("at %#x, %q: %v", at, line, err)
		}
		rest, ok := strings.CutPrefix(m[1], ins.text)
		if !ok {
			t.Errorf("line %q, but it is %q", line, ins.text)
		}
		label := strings.TrimSpace(rest)
		if ins.target >= 0 && label != "" && label[0] != ':' {
			jumps[label] = ins.target
		}
		at += size
		n++
	}
	if n == 0 || len(bytes.TrimRight(code[at:], "\x00")) != 0 {
		t.Errorf("%d instructions listed, %d bytes, but there is more: %x", n, at, code[at:])
	}
	for label, target := range jumps {
		if want, ok := labels[label]; !ok || want != target {
			t.Errorf("a jump goes to %#x, its label %q is at %#x", target, label, want)
		}
	}
}

func TestImageIsELF(t *testing.T) {
	for name, p := range programs {
		f, err := elf.NewFile(bytes.NewReader(p.image()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if f.Machine != p.machine || len(f.Progs) != 1 || f.Progs[0].Flags != elf.PF_R|elf.PF_X {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
