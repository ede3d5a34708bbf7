package export

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// The text tells which traps are the dear ones, and whose time samples in them are.
func TestSteppedText(t *testing.T) {
	r := &attribution.Report{Context: &event.Context{
		Cost: event.Cost{TrapNS: 700, PairNS: 1100, SteppedTrapNS: 15_400},
		Probes: []event.Probe{
			{Name: "post_send", Kind: "uprobe", Hits: 5000},
			{Name: "req_notify_cq", Kind: "uprobe", Hits: 1000, Stepped: true},
			{Name: "req_notify_cq", Kind: "uprobe", Hits: 234, Stepped: true},
			{Name: "wr_abort", Kind: "uprobe", Stepped: true},
		},
	}}
	said := func() string {
		var b strings.Builder
		if err := Text(&b, r, TextOptions{Width: 120}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	want := "1,234 of them at an instruction of req_notify_cq that the kernel has to single-step: 15.4 us each"
	if text := said(); !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
	r.Context.Probes = r.Context.Probes[:1]
	if text := said(); strings.Contains(text, "single-step") {
		t.Errorf("none was hit: %s", text)
	}
	for f, want := range map[event.Frame]string{
		{Module: "[uprobes]", Offset: 0x80}:        "[in a single-stepped probe]",
		{Module: "/usr/lib/libx.so", Offset: 0x80}: "libx.so+0x80",
	} {
		if got := frameName(f); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}
