package export

import (
	"encoding/json"
	"io"
	"reflect"
	"testing"

	"github.com/google/pprof/profile"
	"pgregory.net/rapid"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// Any report of the right types gets through all writers: no panic, no error,
// and what comes out is what its readers accept.
func TestRandomReports(t *testing.T) {
	enum := func(last int) *rapid.Generator[int] { return rapid.IntRange(0, last) }
	reports := rapid.MakeCustom[attribution.Report](rapid.MakeConfig{Types: map[reflect.Type]*rapid.Generator[any]{
		reflect.TypeFor[attribution.Cause]():      rapid.Map(enum(int(attribution.Retransmit)), func(i int) any { return attribution.Cause(i) }),
		reflect.TypeFor[attribution.DoneSource](): rapid.Map(enum(int(attribution.DoneBounded)), func(i int) any { return attribution.DoneSource(i) }),
		reflect.TypeFor[attribution.Demand]():     rapid.Map(enum(int(attribution.Dependent)), func(i int) any { return attribution.Demand(i) }),
	}})
	rapid.Check(t, func(rt *rapid.T) {
		r := reports.Draw(rt, "report")
		narrow := func(w io.Writer, r *attribution.Report) error { return Text(w, r, TextOptions{Width: minWidth}) }
		for _, fault := range lineFaults(render(t, narrow, &r), minWidth) {
			rt.Error(fault)
		}
		render(t, writers["txt"], &r)
		if !json.Valid([]byte(render(t, JSON, &r))) {
			rt.Fatal("invalid JSON")
		}
		if _, err := profile.ParseData([]byte(render(t, Pprof, &r))); err != nil {
			rt.Fatal(err)
		}
		render(t, Folded, &r)
		boxes(t, render(t, writers["svg"], &r))
	})
}
