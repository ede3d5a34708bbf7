package export

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// flamegraphLine is how flamegraph.pl takes a line apart: what it finds at the
// end of the rest once more would be a differential column.
var flamegraphLine = regexp.MustCompile(`^(.*)\s+?(\d+(?:\.\d*)?)$`)

func TestFolded(t *testing.T) {
	for _, f := range fixtures {
		r := f.make()
		var want, got int64
		for _, s := range r.Samples {
			if s.Leaf && s.NS > 0 {
				want = sum(want, s.NS)
			}
		}
		depths := map[int]bool{}
		for _, line := range strings.Split(strings.TrimSuffix(render(t, Folded, r), "\n"), "\n") {
			if line == "" && want == 0 {
				continue
			}
			m := flamegraphLine.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: flamegraph.pl would ignore %q", f.name, line)
				continue
			}
			if flamegraphLine.MatchString(m[1]) {
				t.Errorf("%s: flamegraph.pl would see two columns in %q", f.name, line)
			}
			for _, name := range strings.Split(m[1], ";") {
				if name == "" || flamegraphLine.MatchString(name) {
					t.Errorf("%s: frame %q in %q", f.name, name, line)
				}
			}
			depths[strings.Count(m[1], ";")] = true
			n, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got = sum(got, n)
		}
		if got != want {
			t.Errorf("%s: folded stacks add up to %d, samples to %d", f.name, got, want)
		}
	}
}

// box is a frame as it was drawn.
type box struct {
	from, share float64
	depth       int
	title       string
}

// boxes parses the picture, which must be well-formed XML.
func boxes(t *testing.T, svg string) (list []box) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	inTitle := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			attr := map[string]string{}
			for _, a := range token.Attr {
				attr[a.Name.Local] = a.Value
			}
			if attr["data-d"] != "" {
				from, _ := strconv.ParseFloat(attr["data-x"], 64)
				share, _ := strconv.ParseFloat(attr["data-w"], 64)
				depth, _ := strconv.Atoi(attr["data-d"])
				list = append(list, box{from: from, share: share, depth: depth})
			}
			inTitle = token.Name.Local == "title"
			for name := range attr {
				if strings.HasPrefix(name, "on") || name == "href" {
					t.Errorf("attribute %s", name)
				}
			}
		case xml.EndElement:
			inTitle = false
		case xml.CharData:
			if inTitle && len(list) > 0 && list[len(list)-1].title == "" {
				list[len(list)-1].title = string(token)
			}
		}
	}
}

func TestFlamegraph(t *testing.T) {
	external := regexp.MustCompile(`https?://[^"]*|url\([^#]|@import|<script[^>]+src`)
	for _, f := range fixtures {
		r := f.make()
		svg := render(t, writers["svg"], r)
		for _, found := range external.FindAllString(svg, -1) {
			if found != "http://www.w3.org/2000/svg" && found != "http://www.w3.org/1999/xhtml" {
				t.Errorf("%s: refers to %s", f.name, found)
			}
		}
		drawn := boxes(t, svg)
		if newTree(r).total == 0 {
			if len(drawn) != 0 || !strings.Contains(svg, explainNothing(r).what) {
				t.Errorf("%s: an empty picture must say why", f.name)
			}
			continue
		}
		// Every box stands on one that is at least as wide.
		for i, b := range drawn {
			supported := b.depth == 0 && i == 0
			for _, below := range drawn[:i] {
				if below.depth == b.depth-1 && b.from >= below.from-1e-8 && b.from+b.share <= below.from+below.share+1e-8 {
					supported = true
				}
			}
			if !supported {
				t.Errorf("%s: box %d %+v hangs in the air", f.name, i, b)
			}
		}
	}
}

// Widths are time: the boxes of a class add up to its share.
func TestFlamegraphWidths(t *testing.T) {
	r := fixture(t, "eventmode")
	share := map[string]float64{}
	for _, b := range boxes(t, render(t, writers["svg"], r)) {
		name, _, _ := strings.Cut(b.title, "\n")
		share[name] += b.share
	}
	for _, c := range attribution.Classes {
		want := float64(r.Classes[c].TotalNS) / float64(r.Latency.TotalNS)
		if math.Abs(share[c.String()]-want) > 1e-6 {
			t.Errorf("%s is %.6f wide, want %.6f", c, share[c.String()], want)
		}
	}
	for _, name := range []string{"ibv_rc_pingpong (pid 733)", "main", "pp_post_send"} {
		if math.Abs(share[name]-1) > 1e-6 {
			t.Errorf("%s is %.6f wide, want 1", name, share[name])
		}
	}
}

// What is too narrow is left out, and the picture says so.
func TestFlamegraphCut(t *testing.T) {
	var all, few strings.Builder
	r := fixture(t, "training")
	if err := Flamegraph(&all, r, FlameOptions{MinWidth: 1e-6}); err != nil {
		t.Fatal(err)
	}
	if err := Flamegraph(&few, r, FlameOptions{MinWidth: 50}); err != nil {
		t.Fatal(err)
	}
	a, b := len(boxes(t, all.String())), len(boxes(t, few.String()))
	if b == 0 || b >= a {
		t.Errorf("%d boxes, %d with a cut", a, b)
	}
	if strings.Contains(all.String(), "Not drawn") || !regexp.MustCompile(`Not drawn: \d+ frames below 50 pixels`).MatchString(few.String()) {
		t.Error("the cut is not stated")
	}
}
