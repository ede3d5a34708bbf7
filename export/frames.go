package export

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// frame is one level of a profile: a function of the target, or a class, a
// cause or a culprit on top of it.
type frame struct {
	name  string
	level level
	class attribution.Class // of the upper levels
	user  event.Frame       // of levelUser
}

type level uint8

const (
	levelUser    level = iota // a function of the target
	levelMissing              // stands for what unwinding did not see
	levelClass
	levelCause
	levelWho
)

type stackKey struct {
	pid uint32
	id  uint64
}

// frames resolves the stacks of samples; root first.
type frames struct {
	stacks map[stackKey]*event.Stack
	done   map[stackKey][]frame
}

func newFrames(r *attribution.Report) *frames {
	c := context(r)
	f := &frames{map[stackKey]*event.Stack{}, map[stackKey][]frame{}}
	for i := range c.Stacks {
		s := &c.Stacks[i]
		f.stacks[stackKey{s.PID, s.ID}] = s
	}
	return f
}

// What stands in for frames that are not known.
const (
	noStack         = "[no stack]"
	incompleteStack = "[stack incomplete]"
)

// user frames of the posting site of a sample.
func (f *frames) user(s attribution.Sample) []frame {
	key := stackKey{s.PID, s.Stack}
	if known, ok := f.done[key]; ok {
		return known
	}
	var list []frame
	switch stack := f.stacks[key]; {
	case stack == nil || len(stack.Frames) == 0:
		list = []frame{{name: noStack, level: levelMissing}}
	default:
		if stack.Truncated {
			list = append(list, frame{name: incompleteStack, level: levelMissing})
		}
		for i := len(stack.Frames) - 1; i >= 0; i-- {
			list = append(list, frame{name: frameName(stack.Frames[i]), user: stack.Frames[i]})
		}
	}
	f.done[key] = list
	return list
}

// upper frames of a sample: class, cause and, where there is one, the culprit.
// The culprit's name carries the cause, lest the system call "read" be taken
// for a function of that name.
func upper(s attribution.Sample) []frame {
	if !s.Leaf {
		return nil
	}
	class := s.Cause.Class()
	list := []frame{
		{name: class.String(), level: levelClass, class: class},
		{name: s.Cause.FullName(), level: levelCause, class: class},
	}
	if s.Who != "" {
		list = append(list, frame{name: s.Cause.String() + ": " + clean(s.Who), level: levelWho, class: class})
	}
	return list
}

// processName is the root of pictures.
func processName(c *event.Context, pid uint32) string {
	for _, t := range c.Targets {
		if t.PID == pid {
			return fmt.Sprintf("%s (pid %d)", cleanOr(t.Comm, "process"), pid)
		}
	}
	return fmt.Sprintf("process (pid %d)", pid)
}
