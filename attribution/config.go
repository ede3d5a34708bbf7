package attribution

import "github.com/rdmatrace/rdmatrace/event"

// Config is what analysis knows before the first event. The zero value works.
type Config struct {
	// Devices are the RDMA devices of the targets with their link and PCIe
	// rates. They may be empty: then nothing is called path-limit.
	Devices []event.Device
	// Watermark is how late an event may come, in ns of event time, and still
	// be put where it belongs. 0: DefaultWatermark.
	Watermark uint64
	// Cost of our own traps, for software.probe. The zero value charges none.
	Cost event.Cost
	// Arch of the traced host, "amd64" or "arm64" (or as uname has it): system
	// call numbers depend on it. Empty: amd64.
	Arch string
	// Observe, if set, is given every measured work request with its segments,
	// once they are final, in the order of that. Both are reused after it
	// returns. Threads are named by number only; it is for tests and tools
	// that compare one by one, and costs an allocation each.
	Observe func(*WR, []Segment)
}

// DefaultWatermark holds events back for 400 ms of event time: the tracer lets records
// wait in their rings for 100 ms, and those behind one that a thread without a CPU has
// not finished wait for that as well.
const DefaultWatermark = 400_000_000
