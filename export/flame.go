package export

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// FlameOptions of Flamegraph. The zero value is a page of 1200 pixels on which
// frames below a tenth of a pixel are not drawn.
type FlameOptions struct {
	Title    string  // empty: the target
	Width    int     // pixels before a browser fits it to its window; 0: 1200
	MinWidth float64 // pixels, at that width; 0: 0.1
}

//go:embed flame.svg.tmpl
var flameTemplate string

//go:embed flame.css
var flameStyle string

//go:embed flame.js
var flameScript string

// Sizes in pixels; flame.js has the same ones from the svg element's data.
const (
	flameWidth    = 1200
	flameMargin   = 12
	rowHeight     = 18
	flameTop      = 96 // title, legend, controls
	flameBottom   = 40 // details of the frame under the pointer
	charWidth     = 7.23
	flameMinWidth = 0.1
)

// flamePage is what the template shows.
type flamePage struct {
	Title, Subtitle, Help string
	Width, Height, Bottom int
	Margin, Row, Top      int
	Char                  float64
	Style, Script         string
	Legend                []legendEntry
	Frames                []flameFrame
}

type legendEntry struct {
	X             int
	Class         string
	Fill, Label   string
	Hint, Matches string
}

// flameFrame is one box. From and Share are fractions of the whole width.
type flameFrame struct {
	From, Share  float64
	Depth        int
	X, Y, W, TY  string // pixels at the initial width
	Kind         string // CSS class
	Brief        int    // where the name begins when room is short, in UTF-16 units
	Label, Title string
}

// Flamegraph writes a self-contained SVG: width is time, the posting stacks stand
// at the bottom, and class, cause and culprit on top of them.
func Flamegraph(w io.Writer, r *attribution.Report, o FlameOptions) error {
	t, err := template.New("flame").Funcs(template.FuncMap{"xml": escapeXML}).Parse(flameTemplate)
	if err != nil {
		return fmt.Errorf("parse flame graph template: %w", err)
	}
	buffered := bufio.NewWriter(w)
	if err := t.Execute(buffered, newFlamePage(r, o)); err != nil {
		return fmt.Errorf("write flame graph: %w", err)
	}
	return buffered.Flush()
}

func escapeXML(s string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

func newFlamePage(r *attribution.Report, o FlameOptions) flamePage {
	if o.Width <= 0 {
		o.Width = flameWidth
	}
	if o.MinWidth <= 0 {
		o.MinWidth = flameMinWidth
	}
	root := newTree(r)
	l := flameLayout{root: root, inner: float64(o.Width - 2*flameMargin), least: o.MinWidth}
	p := flamePage{
		Title: clean(o.Title), Width: o.Width, Margin: flameMargin, Row: rowHeight, Top: flameTop, Char: charWidth,
		Style: flameStyle, Script: flameScript,
	}
	if p.Title == "" {
		p.Title = flameTitle(r)
	}
	if root.total == 0 {
		p.Subtitle = explainNothing(r).what
		p.Height = flameTop + 3*rowHeight + flameBottom
		return p
	}
	p.Subtitle, p.Legend = flameSubtitle(r, root), legend(root)
	l.place(root, 0, 0)
	p.Height = flameTop + (l.depth+1)*rowHeight + flameBottom
	p.Bottom = flameTop + l.depth*rowHeight
	for i := range l.frames {
		l.frames[i].Y, l.frames[i].TY = fmt.Sprint(p.Bottom-l.frames[i].Depth*rowHeight), fmt.Sprint(p.Bottom-l.frames[i].Depth*rowHeight+13)
	}
	p.Frames = l.frames
	p.Help = "Width is time. From below: who posted; on top: class, cause, culprit."
	if l.cut > 0 {
		p.Help += fmt.Sprintf(" Not drawn: %s below %g pixels (%s).", counted(int64(l.cut), "frame"), o.MinWidth,
			duration(o.MinWidth/l.inner*float64(root.total)))
	}
	return p
}

func flameTitle(r *attribution.Report) string {
	var names []string
	for i, t := range context(r).Targets {
		if i == 3 {
			names = append(names, "...")
			break
		}
		names = append(names, processName(context(r), t.PID))
	}
	return "Latency of RDMA work requests: " + strings.Join(names, ", ")
}

func flameSubtitle(r *attribution.Report, root *node) string {
	return fmt.Sprintf("%s, %s of latency in all, traced for %s",
		counted(root.wrs, "work request"), durationNS(root.total), durationNS(windowNS(context(r))))
}

// legend of the classes with their shares of the picture.
func legend(root *node) (list []legendEntry) {
	ns := map[attribution.Class]int64{}
	var add func(n *node)
	add = func(n *node) {
		if n.level == levelClass {
			ns[n.class] = sum(ns[n.class], n.total)
			return
		}
		for _, c := range n.children {
			add(c)
		}
	}
	add(root)
	x := flameMargin
	for _, c := range attribution.Classes {
		label := fmt.Sprintf("%s %s", c, percent(float64(ns[c]), float64(root.total)))
		list = append(list, legendEntry{X: x, Class: c.String(), Fill: looks[c].fill, Label: label, Hint: c.String() + ": " + looks[c].legend,
			Matches: "^" + c.String() + "$"})
		x += int(float64(width(label))*charWidth) + 44
	}
	return list
}

// flameLayout places the frames of a tree.
type flameLayout struct {
	root         *node
	inner, least float64 // pixels
	frames       []flameFrame
	depth        int
	cut          int
}

func (l *flameLayout) place(n *node, from float64, depth int) {
	share := float64(n.total) / float64(l.root.total)
	if share*l.inner < l.least {
		l.cut++
		return
	}
	l.depth = max(l.depth, depth)
	l.frames = append(l.frames, flameFrame{
		From: from, Share: share, Depth: depth, Kind: frameKind(n), Title: l.title(n),
		Brief: briefStart(n), Label: fit(n.name, n.name[briefStart(n):], share*l.inner),
		X: pixels(flameMargin + from*l.inner), W: pixels(share*l.inner - min(0.8, 0.15*share*l.inner)),
	})
	for _, c := range n.children {
		l.place(c, from, depth+1)
		from += float64(c.total) / float64(l.root.total)
	}
}

func pixels(v float64) string { return fmt.Sprintf("%.2f", v) }

// fit a label into a box of so many pixels: the name, or what is brief of it.
func fit(name, brief string, room float64) string {
	n := int((room - 6) / charWidth)
	switch {
	case width(name) <= n:
		return name
	case width(brief) <= n:
		return brief
	case n < 5:
		return ""
	}
	return shorten(brief, n)
}

// briefStart is where the class or the cause ends in front of a name: these are
// ASCII, so that bytes and UTF-16 units are the same.
func briefStart(n *node) int {
	switch n.level {
	case levelCause:
		return len(n.class.String()) + len(".")
	case levelWho:
		return strings.Index(n.name, ": ") + len(": ")
	}
	return 0
}

// title is the tooltip: the name alone on the first line, where flame.js finds it.
func (l *flameLayout) title(n *node) string {
	s := fmt.Sprintf("%s\n%s, %s", n.name, durationNS(n.total), percent(float64(n.total), float64(l.root.total)))
	if n.wrs > 0 {
		s += ", " + counted(n.wrs, "work request")
	}
	if n.level == levelClass {
		s += "\n" + looks[n.class].legend
	}
	if n.level == levelCause {
		for cause := attribution.Cause(0); cause.String() != "invalid"; cause++ {
			if cause.FullName() == n.name && told[cause].alone != "" {
				s += "\n" + told[cause].alone
			}
		}
	}
	return s
}

// frameKind is the CSS class: that of the latency, or one of a few shades by
// the function's module, so that neighbours can be told apart.
func frameKind(n *node) string {
	switch n.level {
	case levelMissing:
		return "none"
	case levelUser:
		h := 0
		for _, r := range n.name {
			h = (h*31 + int(r)) & 0xffff
		}
		return fmt.Sprintf("u%d", h%4)
	}
	return n.class.String() + map[level]string{levelClass: "", levelCause: " cause", levelWho: " who"}[n.level]
}
