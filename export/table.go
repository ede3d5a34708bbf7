package export

import "strings"

// cell of a table: its text is padded first and painted afterwards. In a bar
// column, a cell without text is a bar from 0 to low, and in question up to high.
type cell struct {
	text, ansi string
	low, high  float64 // 0 to 1, of the column's width
}

func plain(texts ...string) (cells []cell) {
	for _, t := range texts {
		cells = append(cells, cell{text: t})
	}
	return cells
}

func dim(texts ...string) []cell {
	cells := plain(texts...)
	for i := range cells {
		cells[i].ansi = ansiDim
	}
	return cells
}

// table aligns columns. In layout each column is one letter: l (left), r
// (right), or b (bars, which share what the others leave of the page's width).
// Where the page has no room for all, left ones are shortened.
type table struct {
	layout string
	gap    int // columns between columns; one where the page is too narrow
	indent int
	rows   []row
}

// row of cells, or a remark that runs on across all columns.
type row struct {
	cells  []cell
	remark string
}

func newTable(layout string, head ...string) *table {
	t := &table{layout: layout, gap: 2, indent: 2}
	if head != nil {
		t.row(dim(head...)...)
	}
	return t
}

func (t *table) row(cells ...cell) { t.rows = append(t.rows, row{cells: cells}) }

// remark adds a line below the latest row.
func (t *table) remark(text string) {
	if text != "" {
		t.rows = append(t.rows, row{remark: text})
	}
}

func (t *table) write(p *page) {
	widths := t.widths(p)
	indent := strings.Repeat(" ", t.indent)
	for _, r := range t.rows {
		if r.cells == nil {
			p.prose(indent+"  ", ansiDim, r.remark)
			continue
		}
		p.line(indent + t.align(p, r.cells, widths))
	}
}

// align one row; nothing is padded after its last text.
func (t *table) align(p *page, cells []cell, widths []int) string {
	var b strings.Builder
	blanks := 0
	for i, c := range cells {
		text, maybe := shorten(c.text, widths[i]), ""
		if t.layout[i] == 'b' && text == "" {
			text, maybe = bar(widths[i]-2, c.low, c.high)
			blanks++
		}
		pad := widths[i] - width(text) - len(maybe)
		if t.layout[i] == 'b' && c.text == "" {
			pad--
		}
		if t.layout[i] == 'r' {
			blanks, pad = blanks+pad, 0
		}
		if text+maybe != "" {
			b.WriteString(strings.Repeat(" ", blanks) + p.paint(c.ansi, text) + p.paint(ansiDim, maybe))
			blanks = 0
		}
		blanks += pad + t.gap
	}
	return b.String()
}

// bar of n columns: what is sure, and a question mark for what may be.
func bar(n int, low, high float64) (sure, maybe string) {
	cells := func(v float64) int { return max(min(int(finite(v)*float64(n)+0.5), n), 0) }
	return strings.Repeat("#", cells(low)), strings.Repeat("?", max(cells(high)-cells(low), 0))
}

// longText is a column that can be shortened before columns move together.
const longText = 25

// widths of the columns: what their cells need, less what the page lacks.
func (t *table) widths(p *page) []int {
	w := make([]int, len(t.layout))
	for _, r := range t.rows {
		for i, c := range r.cells {
			w[i] = max(w[i], width(c.text))
		}
	}
	total, bars, longest := 0, strings.Count(t.layout, "b"), 0
	for i, n := range w {
		total += n
		if t.layout[i] == 'l' {
			longest = max(longest, n)
		}
	}
	room := p.room - t.indent
	if gaps := len(w) - 1; p.room > 0 && total+t.gap*gaps > room && longest < longText {
		t.gap = 1
	}
	total += t.gap * (len(w) - 1)
	for ; p.room > 0 && total > room; total-- {
		w[t.widest(w)]--
	}
	for i := range w {
		if t.layout[i] == 'b' {
			w[i] += max(p.width-t.indent-total, 0) / bars
		}
	}
	return w
}

// widest column to take from: text before numbers, which lose their meaning.
func (t *table) widest(w []int) int {
	const least = 6
	text, any := -1, 0
	for i := range w {
		if w[i] > w[any] {
			any = i
		}
		if t.layout[i] == 'l' && w[i] > least && (text < 0 || w[i] > w[text]) {
			text = i
		}
	}
	if text >= 0 {
		return text
	}
	return any
}
