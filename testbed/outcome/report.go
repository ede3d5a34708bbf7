package outcome

import "fmt"

// A Report is what --json prints, as far as tests need it: export/schema.md says
// what the fields are.
type (
	Report struct {
		Totals
		Tool        string
		WindowNS    int64 `json:"window_ns"`
		WRs         Books
		Kinds       map[string]Books
		Received    Totals
		Uncertain   Distribution
		Probe       Distribution
		AtP50       Split `json:"at_p50"`
		AtP99       Split `json:"at_p99"`
		Groups      map[string][]Group
		Incidents   []Incident
		Queues      []Queue
		Receives    []Receive
		Demands     map[string]int64
		DoneSources map[string]int64 `json:"done_sources"`
		Losses      map[string]uint64
		Verdict     string
		Doubts      []string
		Probes      []Probe
		Sampled     *Sampled
		Cost        Cost
		Late        Late
	}
	// Late is what threads did while completions waited that somebody needed.
	Late struct {
		RanNS      int64 `json:"ran_ns"`
		SleptNS    int64 `json:"slept_ns"`
		WaitedNS   int64 `json:"waited_for_cpu_ns"`
		DelayNS    int64 `json:"delay_ns"`
		UnprovenNS int64 `json:"unproven_ns"` // of the other completions
	}
	// Sampled is nil where all of the window was observed.
	Sampled struct {
		Stretches      int64
		ObservedNS     int64   `json:"observed_ns"`
		WRsPerSec      float64 `json:"wrs_per_sec"`
		WRsPerSecError float64 `json:"wrs_per_sec_error"`
	}
	Cost struct {
		OfThreads float64 `json:"of_threads"`
		Limit     float64
	}
	// Totals are of the sends, or of the receives.
	Totals struct {
		Latency   Distribution
		Undecided Distribution
		Classes   Classes
		Causes    map[string]Cause
	}
	Books struct {
		Posted, Completed, Outstanding, Flushed, Lost, Excluded, Unsignalled, Bytes int64
	}
	Distribution struct {
		Count   int64
		TotalNS int64   `json:"total_ns"`
		MeanNS  float64 `json:"mean_ns"`
		P50NS   int64   `json:"p50_ns"`
		P90NS   int64   `json:"p90_ns"`
		P99NS   int64   `json:"p99_ns"`
		P999NS  int64   `json:"p999_ns"`
		MaxNS   int64   `json:"max_ns"`
		MinNS   int64   `json:"min_ns"`
	}
	Classes struct {
		Software, Interrupt, Scheduling, Wire Distribution
	}
	Split struct {
		Count        int64
		LatencyNS    float64 `json:"latency_ns"`
		SoftwareNS   float64 `json:"software_ns"`
		InterruptNS  float64 `json:"interrupt_ns"`
		SchedulingNS float64 `json:"scheduling_ns"`
		WireNS       float64 `json:"wire_ns"`
		UndecidedNS  float64 `json:"undecided_ns"`
		ProbeNS      float64 `json:"probe_ns"`
		Causes       map[string]float64
	}
	Culprit struct {
		Name    string
		TotalNS int64 `json:"total_ns"`
		Count   int64
		Cgroup  string
	}
	Cause struct {
		TotalNS int64 `json:"total_ns"`
		Count   int64
		Who     []Culprit
	}
	Group struct {
		Key       string
		Bytes     int64
		Latency   Distribution
		Classes   Classes
		Undecided Distribution
		AtP50     Split `json:"at_p50"`
		AtP99     Split `json:"at_p99"`
	}
	Incident struct {
		Cause, Who string
		BeginNS    int64 `json:"begin_ns"`
		EndNS      int64 `json:"end_ns"`
		WRs        int64
		DelayNS    int64 `json:"delay_ns"`
		Also       []struct {
			Cause, Who string
			TotalNS    int64 `json:"total_ns"`
		}
		Worst struct {
			PID   int
			QP    uint32
			Index int64
			Op    string
			Bytes int64
		}
	}
	Queue struct {
		PID       int
		QP        uint32
		Peer      string
		Posted    int64
		DepthMean float64 `json:"depth_mean"`
		DepthMax  int64   `json:"depth_max"`
		IdleNS    int64   `json:"idle_ns"`
		Bypass    bool
	}
	// Receive is how long the receives of a queue pair waited for their peer.
	Receive struct {
		QP   uint32
		Wait Distribution
	}
	Probe struct {
		Name, Kind, Library, Offset, Source, Error string
		Misses                                     uint64
	}
)

func (c Culprit) String() string { return fmt.Sprintf("%s %d ns", c.Name, c.TotalNS) }

// Balanced: every work request that was posted is accounted for, once.
func (b *Books) Balanced() bool {
	return b.Posted == b.Completed+b.Outstanding+b.Flushed+b.Lost+b.Excluded
}

// AddUp returns an error if the parts do not add up to the latency, to the
// nanosecond, or one of them is negative.
func (t *Totals) AddUp() error {
	sum := int64(0)
	for _, part := range []struct {
		name string
		d    Distribution
	}{
		{"software", t.Classes.Software}, {"interrupt", t.Classes.Interrupt}, {"scheduling", t.Classes.Scheduling},
		{"wire", t.Classes.Wire}, {"undecided", t.Undecided},
	} {
		if part.d.MinNS < 0 || part.d.TotalNS < 0 {
			return fmt.Errorf("%s is negative: %+v", part.name, part.d)
		}
		sum += part.d.TotalNS
	}
	if sum != t.Latency.TotalNS {
		return fmt.Errorf("latency %d ns, its parts %d", t.Latency.TotalNS, sum)
	}
	return nil
}
