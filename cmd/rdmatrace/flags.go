package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

type mode int

const (
	modeTrace mode = iota
	modePlan
	modeReport
	modeVersion
	modeHelp
)

// options are what the command line says.
type options struct {
	mode  mode
	topic string // of the help; empty: all
	flags *pflag.FlagSet

	pids     []int
	argv     []string // program to start
	duration time.Duration
	input    string // capture file to report

	capture, pprof, flamegraph, folded string // paths; empty: not wanted
	json                               bool

	ready      string
	debug      bool
	dryRun     bool
	emptyPolls bool
	limit      float64 // of the overhead, a share; 0: none
}

// usageError is a fault of the command line: exit code 2.
type usageError struct{ what, topic string }

func (e usageError) Error() string {
	if e.topic != "" {
		return e.what + " (see rdmatrace " + e.topic + " --help)"
	}
	return e.what + " (see rdmatrace --help)"
}

func usagef(format string, args ...any) error { return usageError{what: fmt.Sprintf(format, args...)} }

// about says which help has the answer to a usage error.
func about(topic string, err error) error {
	if e, ok := errors.AsType[usageError](err); ok {
		e.topic = topic
		return e
	}
	return err
}

// Groups of flags, by the annotation that help sorts them with.
const groupKey = "group"

var groups = [...]string{"What to trace", "Output", "Other"}

func newFlags(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("rdmatrace", pflag.ContinueOnError)
	f.SortFlags = false
	f.VarP((*pidList)(&o.pids), "pid", "p", "trace these running `processes`: PID[,PID...]")
	f.VarP((*seconds)(&o.duration), "duration", "d", "stop after this `time`: 10s, 2m; a plain number is seconds. It counts from when all\nprobes are in place, some seconds after the start")
	f.StringVarP(&o.capture, "output", "o", "", "write a capture `file`, for rdmatrace report")
	f.BoolVar(&o.json, "json", false, "print the summary as JSON instead of text")
	f.StringVar(&o.pprof, "pprof", "", "write a pprof profile to `file`")
	f.StringVar(&o.flamegraph, "flamegraph", "", "write a flame graph (SVG) to `file`")
	f.StringVar(&o.folded, "folded", "", "write folded stacks to `file`, a line each, as other viewers of flame graphs read them")
	f.Var((*share)(&o.limit), "max-overhead", "observe part of the time, so that probes take at most this `percentage` of the time of\nthe threads that post and poll; otherwise all is observed")
	f.BoolVar(&o.emptyPolls, "empty-polls", false, "observe also polls that find nothing, at two traps each: sharper times")
	f.BoolVar(&o.dryRun, "dry-run", false, "print which probes would be placed, where and at what cost; place none.\nAs text only, and without what is of a trace: -d, --max-overhead, files")
	f.BoolVar(&o.debug, "debug", false, "log what rdmatrace does, to stderr")
	f.StringVar(&o.ready, "ready-file", "", "create `file` once tracing has begun")
	f.BoolP("help", "h", false, "print this")
	f.Bool("version", false, "print which rdmatrace this is")
	for group, names := range [...][]string{{"pid", "duration", "max-overhead", "empty-polls"}, {"output", "json", "pprof", "flamegraph", "folded"}, {"dry-run", "debug", "help", "version"}} {
		for _, name := range names {
			if err := f.SetAnnotation(name, groupKey, []string{groups[group]}); err != nil {
				panic(err) // a name of this table that is no flag
			}
		}
	}
	if err := f.MarkHidden("ready-file"); err != nil {
		panic(err)
	}
	f.Usage = func() {}
	return f
}

// parse reads the command line. Its errors are usage errors.
func parse(args []string) (*options, error) {
	o := &options{}
	o.flags = newFlags(o)
	if err := o.flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			o.mode = modeHelp
			return o, nil
		}
		return nil, about(o.topicAsked(), usagef("%s", err))
	}
	for m, name := range map[mode]string{modeHelp: "help", modeVersion: "version"} {
		if wanted, _ := o.flags.GetBool(name); wanted {
			o.mode = max(o.mode, m) // if both, always the same of them
		}
	}
	if o.mode != modeTrace {
		o.topic = o.topicAsked()
		return o, nil
	}
	words := o.words()
	if o.flags.ArgsLenAtDash() >= 0 {
		o.argv = o.flags.Args()[len(words):]
		if len(o.argv) == 0 {
			return nil, usagef("no program after --")
		}
	}
	err := o.choose(words)
	if err == nil {
		err = o.checkOutputs()
	}
	if err != nil {
		return nil, about(o.topicAsked(), err)
	}
	return o, nil
}

// words that are no flags, without those of a program to start.
func (o *options) words() []string {
	words := o.flags.Args()
	if n := o.flags.ArgsLenAtDash(); n >= 0 {
		words = words[:n]
	}
	return words
}

// topicAsked is the help that goes with the command line so far.
func (o *options) topicAsked() string { return topicOf(o.words()) }

// choose sets the mode from the words that are not flags.
func (o *options) choose(words []string) error {
	if len(words) == 0 {
		return o.chooseTrace()
	}
	word, rest := words[0], words[1:]
	switch {
	case word == "version" && len(rest) == 0 && o.argv == nil:
		o.mode = modeVersion
	case word == "help" && o.argv == nil:
		o.mode, o.topic = modeHelp, topicOf(rest)
	case word == "report":
		o.mode = modeReport
		if len(rest) != 1 || o.argv != nil {
			return usagef("report takes one capture file")
		}
		o.input = rest[0]
		return o.refuse("report", notOfReport...)
	case o.argv == nil && len(o.pids) == 0:
		return usagef("unknown command %q; to start a program: rdmatrace -- %s", word, word)
	default:
		return usagef("unexpected argument %q", word)
	}
	return nil
}

// notOfReport are the flags of a trace only.
var notOfReport = []string{"pid", "duration", "output", "dry-run", "max-overhead", "empty-polls", "ready-file"}

// topicOf is what help is asked for, by the words beside it.
func topicOf(words []string) string {
	if len(words) > 0 && words[0] == "report" {
		return "report"
	}
	return ""
}

func (o *options) chooseTrace() error {
	switch {
	case len(o.pids) > 0 && o.argv != nil:
		return usagef("either -p PID or a program to start, not both")
	case len(o.pids) == 0 && o.argv == nil:
		return usagef("nothing to do: give -p PID, -- PROGRAM or report FILE")
	case !o.dryRun:
		return nil
	case o.argv != nil:
		return usagef("--dry-run needs a running process: -p PID")
	}
	o.mode = modePlan
	return o.refuse("--dry-run", "duration", "output", "json", "pprof", "flamegraph", "folded", "max-overhead", "ready-file")
}

// refuse flags that make no sense together with what.
func (o *options) refuse(what string, names ...string) error {
	for _, name := range names {
		if o.flags.Changed(name) {
			return usagef("--%s does not go with %s", name, what)
		}
	}
	return nil
}

// outputFlags are the files to write, in the order of writing.
func (o *options) outputFlags() []fileFlag {
	var out []fileFlag
	for _, f := range []fileFlag{{"--output", o.capture}, {"--pprof", o.pprof}, {"--flamegraph", o.flamegraph}, {"--folded", o.folded}} {
		if f.path != "" {
			out = append(out, f)
		}
	}
	return out
}

type fileFlag struct{ name, path string }

// checkOutputs refuses two outputs in one place.
func (o *options) checkOutputs() error {
	taken := map[string]string{}
	if o.json {
		taken["-"] = "--json"
	}
	for _, f := range o.outputFlags() {
		place, shown := f.path, "stdout"
		if place != "-" {
			shown = place
			if abs, err := filepath.Abs(place); err == nil {
				place = abs
			}
		}
		if other, ok := taken[place]; ok {
			return usagef("%s and %s both want %s", other, f.name, shown)
		}
		taken[place] = f.name
	}
	for _, name := range []string{"output", "pprof", "flamegraph", "folded", "ready-file"} {
		if f := o.flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return usagef("--%s needs a file name", name)
		}
	}
	return nil
}

// pidList is PID[,PID...]; given several times it adds up.
type pidList []int

func (p *pidList) Set(s string) error {
	for _, word := range strings.Split(s, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 32)
		if err != nil || n <= 0 {
			return fmt.Errorf("%q is not a process ID", word)
		}
		if !slices.Contains(*p, int(n)) {
			*p = append(*p, int(n))
		}
	}
	return nil
}

func (p *pidList) Type() string   { return "pids" }
func (p *pidList) String() string { return strings.Trim(fmt.Sprint([]int(*p)), "[]") }

// seconds is a duration of more than nothing.
type seconds time.Duration

func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, e := strconv.ParseFloat(text, 64); e == nil {
		if n >= math.MaxInt64/1e9 {
			return errors.New("too long a time: the most is 9e9 seconds")
		}
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return errors.New("not a time above zero, such as 10s")
	}
	*s = seconds(d)
	return nil
}

func (s *seconds) Type() string { return "time" }
func (s *seconds) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// share is a percentage above zero.
type share float64

func (s *share) Set(text string) error {
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil || !(n > 0 && n <= 100) {
		return errors.New("not a percentage above 0 and up to 100, such as 1 or 0.5%")
	}
	*s = share(n / 100)
	return nil
}

func (s *share) Type() string { return "percentage" }
func (s *share) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(*s), 'g', -1, 64) + "%"
}
