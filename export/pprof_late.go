package export

import (
	"github.com/google/pprof/profile"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// unsampled stands for the stack of what ran where no sample was taken.
const unsampled = "[not sampled]"

// late adds what threads did while completions waited: samples that hold nothing but
// that, so that the sums of the latencies stay what they are.
func (b *profileBuilder) late(l *attribution.Late) {
	for _, s := range l.Stacks {
		switch {
		case s.Rest:
			b.lateSample(s, []*profile.Location{b.syntheticLocation(restOfStacks)})
		default:
			b.lateSample(s, b.userLocations(attribution.Sample{PID: s.PID, Stack: s.Stack}))
		}
	}
	b.lateSample(attribution.LateStack{Doing: attribution.Ran, NS: l.UnsampledNS, Rest: true}, []*profile.Location{b.syntheticLocation(unsampled)})
}

func (b *profileBuilder) lateSample(s attribution.LateStack, stack []*profile.Location) {
	if s.NS <= 0 {
		return
	}
	values := make([]int64, len(sampleTypes))
	values[lateIndex] = s.NS
	labels := map[string][]string{}
	if len(b.context.Targets) > 1 && !s.Rest {
		labels["process"] = []string{processName(b.context, s.PID)}
	}
	leaf := b.syntheticLocation("late: " + s.Doing.String())
	b.p.Sample = append(b.p.Sample, &profile.Sample{Location: append([]*profile.Location{leaf}, stack...), Value: values, Label: labels})
}
