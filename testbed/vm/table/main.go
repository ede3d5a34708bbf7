// Command table merges what the VM's tests said of one kernel into
// docs/kernels.md, a table of features by kernel: what the tests print as
// "feature<TAB>NAME<TAB>RESULT" and whether they passed.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	file := flag.String("o", "docs/kernels.md", "the `file` with the table")
	kernel := flag.String("kernel", "", "`name` of the kernel: the column")
	version := flag.String("version", "", "its `version`")
	flag.Parse()
	if err := run(os.Stdin, *file, *kernel, *version); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, file, kernel, version string) error {
	if kernel == "" {
		return errors.New("no kernel is named")
	}
	rows, err := read(in)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("kernel %s: the tests said nothing", kernel)
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t := parse(string(old))
	t.set(kernel, append([]row{{"version", version}}, rows...))
	return os.WriteFile(file, []byte(t.String()), 0o666)
}

// row is one result of one kernel.
type row struct{ feature, result string }

var verdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)

// read takes the features and the verdicts of whole tests from a test's output.
func read(in io.Reader) (rows []row, err error) {
	var tests []row
	s := bufio.NewScanner(in)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if f := strings.Split(s.Text(), "\t"); len(f) == 3 && f[0] == "feature" {
			rows = append(rows, row{f[1], f[2]})
		} else if m := verdict.FindStringSubmatch(s.Text()); m != nil {
			tests = append(tests, row{"test " + m[2], map[string]string{"PASS": "passed", "FAIL": "**failed**", "SKIP": "not run"}[m[1]]})
		}
	}
	return append(rows, tests...), s.Err()
}

// table holds cells by feature and kernel.
type table struct {
	kernels  []string
	features []string
	cells    map[cell]string
}

type cell struct{ feature, kernel string }

// parse reads the table of a file that String wrote; anything else is an empty one.
func parse(text string) *table {
	t := &table{cells: map[cell]string{}}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(f) < 2 {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		switch {
		case t.kernels == nil:
			t.kernels = f[1:]
		case strings.HasPrefix(f[0], "---"):
		default:
			for i, result := range f[1:] {
				if i < len(t.kernels) && result != "" {
					t.put(f[0], t.kernels[i], result)
				}
			}
		}
	}
	return t
}

func (t *table) put(feature, kernel, result string) {
	if !slices.Contains(t.features, feature) {
		t.features = append(t.features, feature)
	}
	if !slices.Contains(t.kernels, kernel) {
		t.kernels = append(t.kernels, kernel)
	}
	t.cells[cell{feature, kernel}] = result
}

// set replaces a kernel's column. Rows that are new stand behind the row that
// they followed in the output.
func (t *table) set(kernel string, rows []row) {
	maps.DeleteFunc(t.cells, func(key cell, _ string) bool { return key.kernel == kernel })
	at := 0
	for _, r := range rows {
		if i := slices.Index(t.features, r.feature); i >= 0 {
			at = i + 1
		} else {
			t.features = slices.Insert(t.features, at, r.feature)
			at++
		}
		t.put(r.feature, kernel, strings.ReplaceAll(r.result, "|", "/"))
	}
	slices.SortFunc(t.kernels, compareKernels)
	t.features = slices.DeleteFunc(t.features, func(f string) bool {
		return !slices.ContainsFunc(t.kernels, func(k string) bool { return t.cells[cell{f, k}] != "" })
	})
}

// compareKernels puts names such as 6.1, 6.12-rt in the order of their numbers, and words
// behind them.
func compareKernels(a, b string) int {
	na, nb := numbers(a), numbers(b)
	return cmp.Or(cmp.Compare(na[0], nb[0]), cmp.Compare(na[1], nb[1]), cmp.Compare(a, b))
}

func numbers(name string) (n [2]int) {
	name, _, _ = strings.Cut(name, "-")
	if name != "" && (name[0] < '0' || name[0] > '9') {
		return [2]int{math.MaxInt}
	}
	for i, part := range strings.SplitN(name, ".", 2) {
		n[i], _ = strconv.Atoi(part)
	}
	return n
}

func (t *table) String() string {
	var b strings.Builder
	b.WriteString(head)
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(t.kernels, " | "), strings.Repeat("---|", len(t.kernels)))
	for _, f := range t.features {
		fmt.Fprintf(&b, "| %s |", f)
		for _, k := range t.kernels {
			fmt.Fprintf(&b, " %s |", t.cells[cell{f, k}])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// head is the page above the table.
const head = `# Kernels

What rdmatrace's own tests found on each kernel of the matrix (testbed/vm/kernels), made by ` + "`make vm-test`" + `: nothing
here is written by hand. A kernel that is not in the table has not been tried, nor what has an empty cell. A column without tests of soft-RoCE is of a kernel
that rdmatrace refuses (the row "traced" says why), or of the machine's own, outside the VM. testbed/vm/README.md says what the tests compare, and
what is known to fail at times.

`
