package capture

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"

	"github.com/rdmatrace/rdmatrace/event"
)

// nameRecord stands where an event's kind would: a length and bytes follow,
// which get the chunk's next number.
const nameRecord = 0

// encoder makes the payload of one chunk of events. It allocates where a chunk
// meets a new name and for objects, which are rare, and nowhere else.
type encoder struct {
	fields
	buf   []byte
	known map[string]uint64
	prev  [event.Kinds]event.Event
}

func newEncoder() *encoder {
	e := &encoder{known: map[string]uint64{}}
	e.names = e
	return e
}

func (c *encoder) reset() {
	c.buf = c.buf[:0]
	clear(c.known)
	clear(c.prev[:])
}

// encode appends e to the payload.
func (c *encoder) encode(e *event.Event) error {
	switch e.Kind {
	case event.KindQP, event.KindCQ, event.KindDeviceContext, event.KindTask:
		if err := c.encodeObject(e); err != nil {
			return err
		}
	default:
		if e.Kind == 0 || int(e.Kind) >= event.Kinds {
			return fmt.Errorf("encode event: unknown kind %d", e.Kind)
		}
	}
	prev := &c.prev[e.Kind]
	c.mask, c.n = 0, 0
	c.walk(e, prev) // new names go to buf, before the event
	c.buf = append(c.buf, uint8(e.Kind))
	c.buf = binary.AppendUvarint(c.buf, c.mask)
	for m := c.mask; m != 0; m &= m - 1 {
		c.buf = binary.AppendUvarint(c.buf, c.values[bits.TrailingZeros64(m)])
	}
	*prev = *e
	return nil
}

func (c *encoder) encodeObject(e *event.Event) (err error) {
	if err = checkObject(e.Kind, e.Object); err == nil {
		c.json, err = json.Marshal(clean(e.Object))
	}
	if err == nil && len(c.json) > maxObject {
		err = fmt.Errorf("the object's %d bytes exceed the format's limit of %d", len(c.json), maxObject)
	}
	if err != nil {
		return fmt.Errorf("encode event of kind %d: %w", e.Kind, err)
	}
	return nil
}

func (c *encoder) intern(name []byte) uint64 {
	if len(name) == 0 {
		return 0
	}
	id, ok := c.known[string(name)]
	if !ok {
		id = uint64(len(c.known) + 1)
		c.known[string(name)] = id
		c.buf = append(c.buf, nameRecord)
		c.buf = binary.AppendUvarint(c.buf, uint64(len(name)))
		c.buf = append(c.buf, name...)
	}
	return id
}

func (*encoder) lookup(uint64) ([]byte, bool) { return nil, false }

// decoder reads the payload of one chunk of events.
type decoder struct {
	fields
	data  []byte // of the chunk, whole
	at    int    // what was read of it
	spans []span // of the names, in data
	prev  [event.Kinds]event.Event

	skipped uint64 // events of kinds that this version does not know, of all chunks
}

type span struct{ begin, end uint32 }

func newDecoder() *decoder {
	d := &decoder{}
	d.decode = true
	d.names = d
	return d
}

func (d *decoder) reset(data []byte) {
	d.data, d.at = data, 0
	d.spans = d.spans[:0]
	clear(d.prev[:])
}

// next decodes the next event that this version knows. It reports false at the
// end of the chunk, and an error where the payload is not what encode makes.
func (d *decoder) next(e *event.Event) (bool, error) {
	for d.at < len(d.data) {
		start := d.at
		kind := d.data[d.at]
		d.at++
		if kind == nameRecord {
			if !d.readName() {
				return false, fmt.Errorf("bad name at %d", start)
			}
			continue
		}
		if !d.readValues() {
			return false, fmt.Errorf("bad event at %d", start)
		}
		if int(kind) >= event.Kinds {
			d.skipped++
			continue
		}
		*e = event.Event{Kind: event.Kind(kind)}
		d.n = 0
		if !d.walk(e, &d.prev[kind]) {
			return false, fmt.Errorf("bad event of kind %d at %d", kind, start)
		}
		d.prev[kind] = *e
		migrated(e)
		return true, nil
	}
	return false, nil
}

// migrated makes of a switch of before migrations had a kind of their own what it is now.
func migrated(e *event.Event) {
	if e.Kind != event.KindSwitch || e.Flags&event.SwitchMigrated == 0 {
		return
	}
	*e = event.Event{Time: e.Time, PID: e.PID, TID: e.TID, CPU: e.CPU, Kind: event.KindMigration, Sched: event.Sched{FromCPU: e.Sched.FromCPU}}
}

// readValues reads a mask and one value for each of its bits.
func (d *decoder) readValues() bool {
	mask, ok := d.uvarint()
	if !ok {
		return false
	}
	d.mask = mask
	for m := mask; m != 0; m &= m - 1 {
		v, ok := d.uvarint()
		if !ok {
			return false
		}
		d.values[bits.TrailingZeros64(m)] = v
	}
	return true
}

func (d *decoder) readName() bool {
	n, ok := d.uvarint()
	if !ok || n > uint64(len(d.data)-d.at) {
		return false
	}
	d.spans = append(d.spans, span{uint32(d.at), uint32(d.at + int(n))})
	d.at += int(n)
	return true
}

func (d *decoder) uvarint() (uint64, bool) {
	v, n := binary.Uvarint(d.data[d.at:])
	if n <= 0 {
		return 0, false
	}
	d.at += n
	return v, true
}

func (*decoder) intern([]byte) uint64 { return 0 }

func (d *decoder) lookup(id uint64) ([]byte, bool) {
	if id == 0 {
		return nil, true
	}
	if id > uint64(len(d.spans)) {
		return nil, false
	}
	s := d.spans[id-1]
	return d.data[s.begin:s.end], true
}
