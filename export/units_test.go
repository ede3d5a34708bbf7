package export

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{duration(0), "0 ns"},
		{duration(-1), "0 ns"},
		{duration(math.NaN()), "0 ns"},
		{duration(7.4), "7 ns"},
		{duration(999), "999 ns"},
		{duration(999.6), "1.00 us"},
		{duration(5123), "5.12 us"},
		{duration(9994), "9.99 us"},
		{duration(9995), "10.0 us"},
		{duration(99_960), "100 us"},
		{duration(999_600), "1.00 ms"},
		{duration(3.98e6), "3.98 ms"},
		{duration(59e9), "59.0 s"},
		{duration(3600e9), "1.00 h"},
		{duration(math.MaxInt64), "106,752 d"},
		{byteCount(0), "0 B"},
		{byteCount(999), "999 B"},
		{byteCount(1_310_720_000), "1.31 GB"},
		{size(0), "0 B"},
		{size(65536), "64 KiB"},
		{size(1 << 20), "1 MiB"},
		{size(3000), "3,000 B"},
		{bitRate(200e9), "200 Gb/s"},
		{rate(24_100), "24.1 k"},
		{count(0), "0"},
		{count(-1234567), "-1,234,567"},
		{count(999_999_999_999), "999,999,999,999"},
		{count(math.MaxInt64), "9.22 E"},
		{percent(0, 0), "0 %"},
		{percent(1, 0), "0 %"},
		{percent(1, 10_000_000), "<0.1 %"},
		{percent(999_999, 1_000_000), ">99 %"},
		{percent(1, 1), "100 %"},
		{percent(73, 1000), "7.3 %"},
		{percentRange(71, 88, 100), "71-88 %"},
		{percentRange(71, 71.2, 100), "71 %"},
		{partsOf(14_200).span(1020, 1020), "1.02 us"},
		{partsOf(14_200).span(0, 300), "0-0.30 us"},
		{partsOf(4_100_000).span(900, 900), "<0.01 ms"},
		{partsOf(500).span(30, 45), "30-45 ns"},
		{partsOf(125_000).text(68_940), "68.9 us"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// A value is never shown with more than three significant digits' error.
func TestDurationRoundTrip(t *testing.T) {
	for ns := int64(1); ns < math.MaxInt64/3; ns = ns*3/2 + 1 {
		text := durationNS(ns)
		back := parseDuration(t, text)
		if math.Abs(back-float64(ns)) > 0.006*float64(ns)+0.5 {
			t.Errorf("%d ns is written %q", ns, text)
		}
	}
}

func parseDuration(t *testing.T, text string) float64 {
	number, name, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range timeUnits {
		if u.name == name {
			return v * u.factor
		}
	}
	t.Fatalf("%q has no unit", text)
	return 0
}
