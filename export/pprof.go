package export

import (
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// sampleTypes of the profile. pprof shows the default one first; readers that
// know no default show the last (profile.proto).
var sampleTypes = []struct {
	name, unit string
	class      attribution.Class
}{
	{"count", "count", 0},
	{"latency", "nanoseconds", 0},
	{"software", "nanoseconds", attribution.Software},
	{"interrupt", "nanoseconds", attribution.Interrupt},
	{"scheduling", "nanoseconds", attribution.Scheduling},
	{"wire", "nanoseconds", attribution.Wire},
	{"undecided", "nanoseconds", attribution.Undecided},
	{"late", "nanoseconds", 0}, // of threads: see pprof_late.go
}

const (
	countIndex        = 0
	latencyIndex      = 1
	firstClassIndex   = 2
	lateIndex         = 7
	defaultSampleType = "latency"
)

// Pprof writes a gzipped profile for google/pprof: the posting site's stack with
// class, cause and culprit on top of it, and, by the sample type late, the stacks of
// threads while completions waited for them.
func Pprof(w io.Writer, r *attribution.Report) error {
	p := newProfile(r)
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("build profile: %w", err)
	}
	return p.Write(w)
}

func newProfile(r *attribution.Report) *profile.Profile {
	c := context(r)
	b := &profileBuilder{
		context:   c,
		frames:    newFrames(r),
		stacks:    map[stackKey][]*profile.Location{},
		locations: map[string]*profile.Location{},
		functions: map[string]*profile.Function{},
		mappings:  map[mappingKey]*profile.Mapping{},
		p: &profile.Profile{
			DefaultSampleType: defaultSampleType,
			TimeNanos:         c.Host.RealtimeOffset + int64(c.Window.Begin),
			DurationNanos:     windowNS(c),
			PeriodType:        &profile.ValueType{Type: defaultSampleType, Unit: "nanoseconds"},
			Period:            1, // every work request is there
		},
	}
	for _, t := range sampleTypes {
		b.p.SampleType = append(b.p.SampleType, &profile.ValueType{Type: t.name, Unit: t.unit})
	}
	b.p.Comments = comments(r)
	b.mainMapping()
	for _, s := range r.Samples {
		b.sample(s)
	}
	b.late(&r.Late)
	b.number()
	return b.p
}

// comments are shown by pprof -comments.
func comments(r *attribution.Report) []string {
	list := []string{"rdmatrace " + clean(context(r).Tool)}
	for _, t := range context(r).Targets {
		list = append(list, "target: "+processName(context(r), t.PID))
	}
	return append(append(list, summary(r)), allDoubts(r)...)
}

// profileBuilder shares locations, functions and mappings between samples.
type profileBuilder struct {
	p         *profile.Profile
	context   *event.Context
	frames    *frames
	stacks    map[stackKey][]*profile.Location
	locations map[string]*profile.Location
	functions map[string]*profile.Function
	mappings  map[mappingKey]*profile.Mapping
	synthetic *profile.Mapping
}

type mappingKey struct {
	pid   uint32
	start uint64
	file  string
}

func (b *profileBuilder) sample(s attribution.Sample) {
	values := make([]int64, len(sampleTypes))
	if s.Leaf {
		values[latencyIndex] = max(s.NS, 0)
		for i := firstClassIndex; i < lateIndex; i++ {
			if sampleTypes[i].class == s.Cause.Class() {
				values[i] = max(s.NS, 0)
			}
		}
	} else {
		values[countIndex] = max(s.Count, 0)
	}
	if values[countIndex] == 0 && values[latencyIndex] == 0 {
		return
	}
	var locations []*profile.Location
	above := upper(s)
	for i := len(above) - 1; i >= 0; i-- {
		locations = append(locations, b.syntheticLocation(above[i].name))
	}
	locations = append(locations, b.userLocations(s)...)
	b.p.Sample = append(b.p.Sample, &profile.Sample{Location: locations, Value: values, Label: b.labels(s)})
}

// labels of a sample; empty ones are left out, as pprof would show them.
func (b *profileBuilder) labels(s attribution.Sample) map[string][]string {
	l := s.Labels
	m := map[string][]string{}
	for _, label := range []struct{ key, value string }{
		{"op", l.Op}, {"size", l.Size}, {"qp", l.QP}, {"peer", l.Peer}, {"device", l.Device}, {"transport", l.Transport},
		{"post_thread", l.PostThread}, {"reap_thread", l.ReapThread},
		{"done_source", l.DoneSource.String()}, {"demand", l.Demand.String()}, {"cgroup", s.Cgroup.Name},
	} {
		if label.value != "" {
			m[label.key] = []string{clean(label.value)}
		}
	}
	if len(b.context.Targets) > 1 {
		m["process"] = []string{processName(b.context, s.PID)}
	}
	return m
}

// userLocations of a sample, innermost first. Inlined functions share the
// location of the function that they are inlined into.
func (b *profileBuilder) userLocations(s attribution.Sample) (list []*profile.Location) {
	key := stackKey{s.PID, s.Stack}
	if known := b.stacks[key]; known != nil {
		return known
	}
	defer func() { b.stacks[key] = list }()
	user := b.frames.user(s)
	for i := len(user) - 1; i >= 0; i-- {
		if user[i].level == levelMissing {
			list = append(list, b.syntheticLocation(user[i].name))
			continue
		}
		group := []frame{user[i]}
		for user[i].user.Inline && i > 0 && user[i-1].level == levelUser {
			i--
			group = append(group, user[i])
		}
		list = append(list, b.userLocation(s.PID, group))
	}
	return list
}

// userLocation of frames at one address, the innermost inlined one first.
func (b *profileBuilder) userLocation(pid uint32, group []frame) *profile.Location {
	last := group[len(group)-1].user
	m := b.mappingOf(pid, last)
	var key strings.Builder
	fmt.Fprintf(&key, "%d %x %p", pid, last.Addr, m)
	for _, f := range group {
		fmt.Fprintf(&key, "\x00%s\x00%d", f.name, f.user.Line)
	}
	if l := b.locations[key.String()]; l != nil {
		return l
	}
	l := &profile.Location{Mapping: m, Address: last.Addr}
	for _, f := range group {
		l.Line = append(l.Line, profile.Line{Function: b.function(f.name, clean(f.user.File)), Line: int64(max(f.user.Line, 0))})
	}
	b.locations[key.String()] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

// syntheticMapping holds what is no code: classes, causes, culprits. A name in
// brackets is one that pprof does not look for (Mapping.Unsymbolizable).
const syntheticMapping = "[rdmatrace]"

// Addresses of the synthetic mapping: where no x86-64 or arm64 user code can be.
const syntheticStart = 0xffff_8000_0000_0000

func (b *profileBuilder) syntheticLocation(name string) *profile.Location {
	key := "synthetic\x00" + name
	if l := b.locations[key]; l != nil {
		return l
	}
	if b.synthetic == nil {
		b.synthetic = symbolised(&profile.Mapping{Start: syntheticStart, Limit: syntheticStart, File: syntheticMapping})
	}
	l := &profile.Location{Mapping: b.synthetic, Address: b.synthetic.Limit, Line: []profile.Line{{Function: b.function(name, syntheticMapping), Line: 1}}}
	b.synthetic.Limit += 16
	b.locations[key] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *profileBuilder) function(name, file string) *profile.Function {
	key := name + "\x00" + file
	if f := b.functions[key]; f != nil {
		return f
	}
	f := &profile.Function{Name: name, SystemName: name, Filename: file}
	b.functions[key] = f
	b.p.Function = append(b.p.Function, f)
	return f
}

// symbolised marks a mapping as done: pprof shall not look for its file, which
// may be another one on the reader's machine.
func symbolised(m *profile.Mapping) *profile.Mapping {
	m.HasFunctions, m.HasFilenames, m.HasLineNumbers, m.HasInlineFrames = true, true, true, true
	return m
}

// mainMapping comes first, as pprof takes the first one for the program.
func (b *profileBuilder) mainMapping() {
	for _, t := range b.context.Targets {
		for _, m := range b.context.Mappings {
			if m.PID == t.PID && m.Path == t.Exe && m.Path != "" {
				b.addMapping(m)
				return
			}
		}
	}
}

// mappingOf a frame; nil where its code was in no file.
func (b *profileBuilder) mappingOf(pid uint32, f event.Frame) *profile.Mapping {
	for _, m := range b.context.Mappings {
		if m.PID == pid && f.Addr >= m.Start && f.Addr < m.End && (f.Module == "" || f.Module == m.Path) {
			return b.addMapping(m)
		}
	}
	if f.Module == "" {
		return nil
	}
	return b.addMapping(event.Mapping{PID: pid, Path: f.Module})
}

func (b *profileBuilder) addMapping(m event.Mapping) *profile.Mapping {
	key := mappingKey{m.PID, m.Start, m.Path}
	if known := b.mappings[key]; known != nil {
		return known
	}
	file := clean(m.Path)
	if m.Deleted && !strings.HasSuffix(file, "(deleted)") {
		file += " (deleted)"
	}
	pm := symbolised(&profile.Mapping{Start: m.Start, Limit: m.End, Offset: m.Offset, File: path.Clean(file), BuildID: clean(m.BuildID)})
	b.mappings[key] = pm
	b.p.Mapping = append(b.p.Mapping, pm)
	return pm
}

// number gives everything its id: dense, from 1.
func (b *profileBuilder) number() {
	if b.synthetic != nil {
		b.p.Mapping = append(b.p.Mapping, b.synthetic)
	}
	for i, m := range b.p.Mapping {
		m.ID = uint64(i + 1)
	}
	for i, l := range b.p.Location {
		l.ID = uint64(i + 1)
	}
	for i, f := range b.p.Function {
		f.ID = uint64(i + 1)
	}
}
