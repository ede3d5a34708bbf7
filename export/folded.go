package export

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// Folded writes one line per stack, "process;outermost;...;class;class.cause
// nanoseconds", for flamegraph.pl and what reads the same. The sum of the values
// is the latency of all work requests.
func Folded(w io.Writer, r *attribution.Report) error {
	root := newTree(r)
	buffered := bufio.NewWriter(w)
	var names []string
	var walk func(n *node) error
	walk = func(n *node) error {
		names = append(names, foldable(n.name))
		defer func() { names = names[:len(names)-1] }()
		if n.self > 0 {
			if _, err := buffered.WriteString(strings.Join(names, ";") + " " + strconv.FormatInt(n.self, 10) + "\n"); err != nil {
				return err
			}
		}
		for _, child := range n.children {
			if err := walk(child); err != nil {
				return err
			}
		}
		return nil
	}
	for _, process := range root.children {
		if err := walk(process); err != nil {
			return err
		}
	}
	return buffered.Flush()
}
