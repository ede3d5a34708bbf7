package export

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is a step of a scale: from that many base units on, it is used.
type unit struct {
	factor float64
	name   string
}

var (
	timeUnits  = []unit{{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}, {3.6e12, "h"}, {86.4e12, "d"}}
	byteUnits  = []unit{{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}, {1e15, "PB"}}
	bitUnits   = []unit{{1, "b/s"}, {1e3, "kb/s"}, {1e6, "Mb/s"}, {1e9, "Gb/s"}, {1e12, "Tb/s"}}
	countUnits = []unit{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}, {1e15, "P"}, {1e18, "E"}}
)

// pick returns the largest unit that keeps v, rounded to three digits, at 1 or more.
func pick(v float64, units []unit) unit {
	u := units[0]
	for _, next := range units[1:] {
		if v < next.factor*0.9995 {
			break
		}
		u = next
	}
	return u
}

// digits writes v with three significant digits, and with commas from 1000 on.
func digits(v float64) string {
	switch {
	case v >= 999.5:
		return count(int64(math.Round(math.Min(v, 9e18))))
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// scaled writes v in the unit that suits it; whole numbers in the base unit.
func scaled(v float64, units []unit) string {
	v = finite(v)
	u := pick(v, units)
	s := digits(v / u.factor)
	if u.factor == 1 {
		s = strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	return strings.TrimRight(s+" "+u.name, " ")
}

// largest is more than any count or duration can be.
const largest = 2e19

// finite maps what no reader can use (NaN, infinities, negative values) to what
// arithmetic survives.
func finite(v float64) float64 {
	if math.IsNaN(v) || v < 0 {
		return 0
	}
	return math.Min(v, largest)
}

// duration of ns nanoseconds, "5.12 us".
func duration(ns float64) string { return scaled(ns, timeUnits) }

func durationNS(ns int64) string { return duration(float64(ns)) }

// orDash is for tables, where a column of zeros hides what is not zero.
func orDash(ns int64) string {
	if ns <= 0 {
		return "-"
	}
	return durationNS(ns)
}

// byteCount in decimal units, "81.5 GB": they compare with link rates.
func byteCount(n int64) string { return scaled(float64(n), byteUnits) }

// size of a message: in binary units where it is a whole number of them, as
// messages are, "64 KiB"; else in bytes.
func size(n int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n > 0 && n&(1<<u.shift-1) == 0 {
			return count(n>>u.shift) + " " + u.name
		}
	}
	return count(n) + " B"
}

// bitRate of bps bits per second, "65.2 Gb/s".
func bitRate(bps float64) string { return scaled(bps, bitUnits) }

// rate of things per second, "24.1 k".
func rate(perSec float64) string { return scaled(perSec, countUnits) }

// count with commas, "1,234,567"; in words from 10^12 on.
func count(n int64) string {
	if n >= 1e12 {
		return scaled(float64(n), countUnits)
	}
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// counted writes a number with its noun: "1 WR", "1,234 WRs".
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// percent of part in whole: "71 %", "7.3 %", "<0.1 %"; never 100 for less than
// all, nor 0 for more than nothing.
func percent(part, whole float64) string {
	return percentDigits(part, whole) + " %"
}

func percentDigits(part, whole float64) string {
	part, whole = finite(part), finite(whole)
	p := 100 * part / whole
	switch {
	case whole == 0 || part == 0:
		return "0"
	case p < 0.1:
		return "<0.1"
	case p < 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64)
	case p >= 99.5 && part < whole:
		return ">99"
	}
	return strconv.FormatFloat(p, 'f', 0, 64)
}

// percentRange is "71 %" or, where low and high read differently, "71-88 %".
func percentRange(low, high, whole float64) string {
	return span(percentDigits(low, whole), percentDigits(high, whole)) + " %"
}

func span(low, high string) string {
	if low == high {
		return low
	}
	return low + "-" + high
}

// parts of one duration are written in one unit, that of the whole, so that
// the eye can add them up.
type parts struct {
	unit
	whole float64 // in that unit
}

func partsOf(whole float64) parts {
	u := pick(finite(whole), timeUnits)
	return parts{u, finite(whole) / u.factor}
}

func (p parts) number(ns float64) string {
	v := finite(ns) / p.factor
	switch {
	case ns <= 0:
		return "0"
	case p.factor == 1:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v < 0.005:
		return "<0.01"
	case v >= 999.5:
		return digits(v)
	case p.whole >= 99.5:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func (p parts) text(ns float64) string {
	if ns <= 0 {
		return "-"
	}
	return p.number(ns) + " " + p.name
}

func (p parts) span(low, high float64) string {
	return span(p.number(low), p.number(high)) + " " + p.name
}

// hex of an id that does not fit a float64, as JSON readers have them.
func hex(id uint64) string { return fmt.Sprintf("0x%x", id) }
