package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// trustPage explains what reports say of what was lost, and of what limits conclusions.
const trustPage = "docs/trust.md"

// Where such things are said: calls with these names, lists with these names that are
// appended to, and functions and variables that hold nothing else.
var (
	saying    = []string{"say", "note", "keepNote"}
	saidLists = []string{"notes", "Notes", "doubts"}
	saidIn    = []string{"bypassDoubt", "contradictions", "tracepointNote", "mmapLockNote", "lostWithout", "Note", "cutContext"}
)

// A verb of fmt, and what a sentence has instead of a plural.
var (
	formatted    = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]|%%`)
	alternatives = regexp.MustCompile(`\{[^{|}]*\|([^{|}]*)\}`)
)

// TestTrustIsExplained: a reader who meets one of these looks it up.
func TestTrustIsExplained(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, trustPage))
	if err != nil {
		t.Fatal(err)
	}
	explained := strings.Join(strings.Fields(string(page)), " ")
	names, sentences := 0, 0
	texts(t, func(path string, content []byte) {
		room, _, _ := strings.Cut(filepath.ToSlash(path), "/")
		if _, ok := rooms[room]; !ok || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		if strings.HasSuffix(path, "losses.go") {
			for _, name := range lossNames(file) {
				names++
				if !strings.Contains(explained, "`"+name+"`") {
					t.Errorf("%s: %s has nothing on the loss %q", path, trustPage, name)
				}
			}
		}
		for _, sentence := range doubtTexts(room, file) {
			sentences++
			if !strings.Contains(explained, sentence) {
				t.Errorf("%s: %s has nothing on the doubt %q", path, trustPage, sentence)
			}
		}
	})
	if names < 40 || sentences < 60 {
		t.Errorf("%d losses and %d doubts were found: where are the others?", names, sentences)
	}
}

// lossNames are those of counters: of kinds of records, and of what else is counted.
func lossNames(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for _, text := range literals(n) {
				switch n.Names[0].Name {
				case "counterNames":
					names = append(names, text)
				case "kindNames":
					names = append(names, "dropped: "+text)
				}
			}
			return false
		case *ast.CompositeLit: // the one that is counted by user space
			if s, ok := n.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Counter" {
				for _, text := range literals(n) {
					if text != "dropped: " {
						names = append(names, text)
					}
				}
			}
		}
		return true
	})
	return names
}

// doubtTexts are the parts of sentences that are always the same.
func doubtTexts(room string, file *ast.File) (said []string) {
	take := func(n ast.Node) {
		for _, text := range literals(n) {
			if s := alwaysSaid(text); s != "" && !slices.Contains(said, s) {
				said = append(said, s)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if slices.Contains(saidIn, n.Name.Name) || n.Recv != nil && n.Name.Name == "doubts" {
				take(n)
			}
		case *ast.ValueSpec:
			if slices.Contains(saidIn, n.Names[0].Name) {
				take(n)
			}
		case *ast.CallExpr:
			if room == "export" {
				return true // those are notes on tables
			}
			called := lastName(n.Fun)
			if slices.Contains(saying, called) || called == "append" && slices.Contains(saidLists, lastName(n.Args[0])) {
				for _, arg := range n.Args {
					take(arg)
				}
			}
		case *ast.AssignStmt: // to a sentence that is given back
			if lastName(n.Lhs[0]) == "note" {
				take(n)
			}
		}
		return true
	})
	return said
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func literals(n ast.Node) (all []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, is := constant(e)
		if is {
			all = append(all, text)
		}
		return !is
	})
	return all
}

// constant is the text of a literal, or of some that are added up.
func constant(e ast.Expr) (text string, is bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		x, isX := constant(e.X)
		y, isY := constant(e.Y)
		return x + y, isX && isY
	}
	return "", false
}

// alwaysSaid is the longest part of a format that is the same in every sentence made of
// it, in the plural; empty if that is too short to be looked up.
func alwaysSaid(format string) (longest string) {
	const least = 4 // words
	for _, part := range formatted.Split(alternatives.ReplaceAllString(format, "$1"), -1) {
		if part = strings.Trim(strings.Join(strings.Fields(part), " "), " ,;:.()"); len(part) > len(longest) {
			longest = part
		}
	}
	if len(strings.Fields(longest)) < least {
		return ""
	}
	return longest
}
