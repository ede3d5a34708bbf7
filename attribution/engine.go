package attribution

import "github.com/rdmatrace/rdmatrace/event"

// Engine turns events into work requests, cuts the latency of each into
// segments and hands them to the aggregates. It is not safe for concurrent use.
type Engine struct {
	cfg Config
	out sink
	agg *aggregates
}

// sink is where the engine's findings go: the aggregates, or a test.
type sink interface {
	add(m *measured)
	posted(qp *queuePair, t uint64, tid uint32, opcode uint8, bytes uint64, depth int32)
	retired(qp *queuePair, t uint64, n int32, bytes uint64, depth int32)
}

// New makes an Engine.
func New(cfg Config) *Engine {
	e := newEngine(cfg, nil)
	e.agg = newAggregates(cfg, nil)
	e.out = e.agg
	return e
}

func newEngine(cfg Config, out sink) *Engine {
	return &Engine{cfg: cfg, out: out}
}

// Add takes one event. Events may come in any order inside the watermark; ev
// is not kept.
func (e *Engine) Add(ev *event.Event) {}

// Finish takes what is still held back, closes the books and makes the Report.
// The Engine cannot be used afterwards.
func (e *Engine) Finish(ctx *event.Context) *Report {
	return e.agg.finish(ctx, nil)
}
