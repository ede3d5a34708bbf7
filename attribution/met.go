package attribution

import (
	"fmt"
	"regexp"

	"github.com/rdmatrace/rdmatrace/event"
)

// met counts what the engine came across that it could not use, or that its
// findings suffer from.
type met struct {
	late              [roomRare + 1]int64 // events later than the watermark, by room
	broken            int64               // events that contradict themselves
	strayReturns      int64               // returns of posting calls whose entry was not seen
	missedReturns     int64               // posting calls whose return was not seen
	strayCompletions  int64               // completions whose post was not seen
	missedCompletions int64               // WRs passed over by a later completion
	unreadable        int64               // completions that could not be read
	unanchored        int64               // times a queue lost its place
	overgrown         int64               // times a queue was cut for its length
	dropped           [event.Kinds]uint64 // records, by kind; 0: of unknown kind
	narrowed          int64               // times the watermark was narrowed
	unpriced          int64               // probes of ibv_req_notify_cq that were hit, at a cost that is not known
	repaired          int64               // threads seen where their timeline did not have them
	unknown           int64               // ns of thread time asked about and not known
	clockSteps        int64
	clockOutliers     int64
}

var kindNames = [event.Kinds]string{
	0:                       "(any)",
	event.KindWR:            "post",
	event.KindPostEnd:       "return of post",
	event.KindCompletion:    "completion",
	event.KindArm:           "arm",
	event.KindCQE:           "completion entry",
	event.KindCQEvent:       "completion event",
	event.KindSwitch:        "switch",
	event.KindWaking:        "waking",
	event.KindMigration:     "migration",
	event.KindQuota:         "quota",
	event.KindInterrupt:     "interrupt",
	event.KindQP:            "queue pair",
	event.KindCQ:            "completion queue",
	event.KindDeviceContext: "device context",
	event.KindTask:          "task",
	event.KindLoss:          "loss",
	event.KindPause:         "pause",
	event.KindSample:        "sample",
}

// doubts tells the reader, worst first.
func (m *met) doubts() (doubts []string) {
	say := func(n int64, format string) {
		if n > 0 {
			doubts = append(doubts, plural(n, format))
		}
	}
	for kind, n := range m.dropped {
		if n > 0 {
			doubts = append(doubts, plural(int64(n), "%d "+kindNames[kind]+" {record was|records were} dropped: what {it concerns|they concern} is lost or undecided"))
		}
	}
	say(m.late[roomVerb], "%d {post or completion|posts or completions} came too late to be ordered and {was|were} left out")
	say(m.late[roomSched]+m.late[roomInterrupt], "%d {record|records} of the scheduler or of interrupts came too late to be ordered and {was|were} left out")
	say(m.late[roomSample], "%d {sample|samples} came too late to be ordered and {was|were} left out")
	say(m.late[roomRare], "%d {record|records} of objects, tasks or losses came too late to be ordered and {was|were} left out")
	say(m.broken, "%d {record contradicts itself and was|records contradict themselves and were} left out")
	say(m.unreadable, "%d {completion|completions} could not be read")
	say(m.unanchored, "%d {time|times} a queue lost its place: its work requests are excluded until it is proven again")
	say(m.missedCompletions, "%d {time|times} a completion was missing before a later one of its queue")
	say(m.missedReturns, "%d posting {call was|calls were} not seen to return: {its|their} work requests are lost")
	say(m.strayReturns, "%d {return of a posting call|returns of posting calls} had no entry (calls in progress at the beginning)")
	say(m.strayCompletions, "%d {completion|completions} had no post that was seen")
	say(m.overgrown, "%d {time|times} a queue was cut: it grew without a completion that says which of its work requests are done")
	say(m.narrowed, "%d {time|times} more events were held back than fit: late ones may have been refused")
	say(m.repaired, "%d {time|times} a thread was seen running while the records of the scheduler had it elsewhere")
	say(m.unpriced, "%d {call|calls} of ibv_req_notify_cq ran into a probe whose cost was not measured: software includes it")
	if m.unknown > 0 {
		doubts = append(doubts, fmt.Sprintf("%.3g s, summed over the work requests, lie before what is known of their threads and are undecided", float64(m.unknown)/1e9))
	}
	say(m.clockSteps, "%d {step|steps} of a device's clock")
	say(m.clockOutliers, "%d {time stamp of a CQE|time stamps of CQEs} outside what causality allows")
	return doubts
}

// alternatives are of one, and of more.
var alternatives = regexp.MustCompile(`\{([^{|}]*)\|([^{|}]*)\}`)

// plural puts a number into a sentence, of which it takes the alternatives that go with it.
func plural(n int64, format string) string {
	which := "$2"
	if n == 1 {
		which = "$1"
	}
	return fmt.Sprintf(alternatives.ReplaceAllString(format, which), n)
}
