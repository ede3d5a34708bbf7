package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rdmatrace/rdmatrace/"

// rooms may import these others, and themselves: the direction of
// docs/architecture.md. Tests and what is not listed may import anything.
var rooms = map[string][]string{
	"event":       nil,
	"bpf":         nil,
	"capture":     {"event"},
	"attribution": {"event"},
	"export":      {"event", "attribution"},
	"tracer":      {"event", "bpf"},
	"cmd":         {"event", "capture", "attribution", "export", "tracer"},
}

// pure rooms see neither the kernel nor the operating system nor a clock.
var pure = []string{"event", "capture", "attribution", "export"}

// impure are packages, with all below them, that a pure room does not import,
// except the harmless: those are data types.
var impure = []string{"os", "syscall", "net", "plugin", "runtime/debug", "golang.org/x/sys", "golang.org/x/term", "github.com/cilium/ebpf"}

var harmless = []string{"net/netip"}

// clock are the functions of package time that know what time it is.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

// faults of one file of a room.
func faults(room string, file *ast.File) (out []string) {
	isPure := slices.Contains(pure, room)
	timeName := ""
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return append(out, err.Error())
		}
		if inner, ok := strings.CutPrefix(path, module); ok {
			other, _, _ := strings.Cut(inner, "/")
			if other != room && !slices.Contains(rooms[room], other) {
				out = append(out, room+" imports "+inner+", against the direction of docs/architecture.md")
			}
		}
		if !isPure {
			continue
		}
		for _, p := range impure {
			if within(path, p) && !slices.Contains(harmless, path) {
				out = append(out, room+" is pure and imports "+path)
			}
		}
		if path == "time" {
			if timeName = "time"; spec.Name != nil {
				timeName = spec.Name.Name
			}
		}
	}
	if timeName == "." {
		return append(out, "import time with its name")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && timeName != "" && x.Name == timeName && slices.Contains(clock, sel.Sel.Name) {
			out = append(out, room+" is pure and calls time."+sel.Sel.Name)
		}
		return true
	})
	return out
}

func TestRooms(t *testing.T) {
	found := map[string]bool{}
	texts(t, func(path string, content []byte) {
		room, _, _ := strings.Cut(filepath.ToSlash(path), "/")
		if _, ok := rooms[room]; !ok || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		found[room] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, f := range faults(room, file) {
			t.Errorf("%s: %s", path, f)
		}
	})
	for room := range rooms {
		if !found[room] {
			t.Errorf("no Go file of %s was looked at", room)
		}
	}
}

// The rules do find what they forbid.
func TestRoomsFindsFaults(t *testing.T) {
	for _, c := range []struct{ room, source, want string }{
		{"export", `import "os/exec"`, "imports os/exec"},
		{"export", `import "time"; var x = time.Now()`, "calls time.Now"},
		{"export", `import tm "time"; var x = tm.Since`, "calls time.Since"},
		{"export", `import . "time"`, "with its name"},
		{"export", `import "time"; var x = time.Duration(1)`, ""},
		{"attribution", `import "net/netip"`, ""},
		{"attribution", `import "net/http"`, "imports net/http"},
		{"capture", `import "golang.org/x/sys/unix"`, "imports golang.org/x/sys/unix"},
		{"attribution", `import "` + module + `tracer"`, "imports tracer"},
		{"attribution", `import "` + module + `event"`, ""},
		{"event", `import "` + module + `capture"`, "imports capture"},
		{"tracer", `import ("os"; "` + module + `bpf"; "` + module + `tracer/locate")`, ""},
		{"tracer", `import "` + module + `attribution"`, "imports attribution"},
		{"cmd", `import "` + module + `bpf"`, "imports bpf"},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+c.source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(faults(c.room, file), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s: %q, want %q", c.room, c.source, got, c.want)
		}
	}
}

// Only main ends the process: os.Exit elsewhere runs past every defer. That of
// helpers is in tracer/again.
func TestOnlyMainExits(t *testing.T) {
	texts(t, func(path string, content []byte) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || path == "tracer/again/again.go" {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv == nil && fn.Name.Name == "main" && file.Name.Name == "main" {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if ok && (x.Name == "os" && sel.Sel.Name == "Exit" || x.Name == "log" && strings.HasPrefix(sel.Sel.Name, "Fatal")) {
					t.Errorf("%s calls %s.%s outside main", path, x.Name, sel.Sel.Name)
				}
				return true
			})
		}
	})
}
