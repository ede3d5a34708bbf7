package export

import "github.com/rdmatrace/rdmatrace/attribution"

// looks of the classes, the same ones in text and pictures. The colours are
// those of Okabe and Ito, which colour-blind readers can tell apart
// (https://jfly.uni-koeln.de/color/).
var looks = map[attribution.Class]struct {
	ansi   string // SGR parameters
	fill   string // of SVG
	legend string
}{
	attribution.Software:   {"34", "#56b4e9", "posting, polling late, reaping, asleep for its own reasons"},
	attribution.Interrupt:  {"35", "#cc79a7", "waiting for the interrupt, its handler, interrupts on top"},
	attribution.Scheduling: {"33", "#e69f00", "runnable but not running"},
	attribution.Wire:       {"32", "#1fb584", "NIC, PCIe, fabric, peer"},
	attribution.Undecided:  {"90", "#b8b8b8", "wire or late-poll: the evidence does not choose"},
}

const (
	ansiBold = "1"
	ansiDim  = "2"
	ansiWarn = "1;31"
)

// wireName says what the class holds: it is never "the network".
const wireName = "wire (NIC, PCIe, fabric, peer)"

// className in prose.
func className(c attribution.Class) string {
	if c == attribution.Wire {
		return wireName
	}
	return c.String()
}
