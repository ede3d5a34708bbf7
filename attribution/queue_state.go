package attribution

const (
	// queuesMost queue pairs are followed each; those beyond share one entry
	// per port, whose wire is not split.
	queuesMost = 4096
	// queueCellsMost pairs of queue pair and posting thread are told apart.
	queueCellsMost = 1024
	// opSizesMost pairs of operation and exact size are told apart; further
	// sizes fall into powers of two.
	opSizesMost = 128
	// floorsMost peers, operations and transports are fitted; beyond, the wire
	// stays unsplit.
	floorsMost = 256
)

// queueState is what the aggregates know of a queue pair.
type queueState struct {
	qp     *queuePair
	index  int32
	port   *tracedPort
	shared bool   // stands for many queue pairs
	peer   string // host only: see peerHost

	backlog backlog
	history sendHistory // as of the last WR that came
	served  sendHistory // as of the last WR that was split
	stall   wireStall
	// stuckUntil is when a WR was done that other queue pairs overtook: those posted
	// before then waited for it.
	stuckUntil uint64
	floors     [16]*floor // by opcode
	peerWait   durations

	exposedWire, exposedUndecided intervalSet

	lastTID  uint32
	lastCell *cell
}

func (a *aggregates) queue(qp *queuePair) *queueState {
	if qp.aggregate == nil {
		qp.aggregate = a.newQueue(qp)
	}
	return qp.aggregate
}

func (a *aggregates) newQueue(qp *queuePair) *queueState {
	port := a.port(portName{qp.device, portNumber(qp, a.cfg.Devices)})
	if len(a.queues) >= queuesMost {
		return a.overflow(port)
	}
	q := &queueState{qp: qp, port: port, peer: peerHost(validText(qp.peer))}
	a.enlist(q)
	return q
}

func (a *aggregates) enlist(q *queueState) {
	q.index = int32(len(a.queues))
	a.queues = append(a.queues, q)
}

// overflow is the entry of all queue pairs of a port beyond a bound.
func (a *aggregates) overflow(port *tracedPort) *queueState {
	if port.overflow == nil {
		port.overflow = &queueState{qp: new(queuePair), port: port, shared: true, peer: other}
		a.enlist(port.overflow)
	}
	return port.overflow
}

// port by name: a host has few.
func (a *aggregates) port(name portName) *tracedPort {
	for _, p := range a.ports {
		if p.name == name {
			return p
		}
	}
	p := newTracedPort(name, int16(len(a.ports)), a.cfg.Devices)
	a.ports = append(a.ports, p)
	return p
}

// floor of a queue pair's operation; nil beyond floorsMost.
func (a *aggregates) floor(q *queueState, opcode uint8) *floor {
	slot := &q.floors[opcode%uint8(len(q.floors))]
	if *slot != nil {
		return *slot
	}
	key := floorKey{q.port.name.device, q.peer, q.port.name.number, q.qp.qpType, opcode}
	f := a.floors[key]
	if f == nil {
		if len(a.floors) >= floorsMost {
			a.noFloor++
			return nil
		}
		f = &floor{key: key, refit: floorWRs}
		a.floors[key] = f
		a.lines = append(a.lines, f)
	}
	*slot = f
	return f
}

// opKey of the cells by operation and size.
type opKey struct {
	opcode  uint8
	receive bool
	rounded bool // size is a bucket of sizeLabel
	size    uint64
}

type opCell struct {
	key opKey
	cell
}

// op is the cell of m's operation and size.
func (a *aggregates) op(m *measured) *opCell {
	key := opKey{opcode: m.opcode, receive: m.receive, size: m.bytes}
	if a.lastOp != nil && a.lastOpKey == key {
		return a.lastOp
	}
	c := a.ops[key]
	if c == nil {
		c = a.newOp(key)
	}
	a.lastOp, a.lastOpKey = c, key
	return c
}

func (a *aggregates) newOp(key opKey) *opCell {
	if len(a.ops) >= opSizesMost {
		key.rounded, key.size = true, uint64(sizeBucket(key.size))
		if c := a.ops[key]; c != nil {
			return c
		}
	}
	const fine = 4 // buckets of latency 6 % wide
	c := &opCell{key: key, cell: *newCell(fine)}
	a.ops[key] = c
	return c
}

type queueCellKey struct {
	queue int32
	tid   uint32
}

// queueCell is the cell of a queue pair and posting thread.
func (a *aggregates) queueCell(q *queueState, tid uint32) *cell {
	if q.lastCell != nil && q.lastTID == tid {
		return q.lastCell
	}
	key := queueCellKey{q.index, tid}
	c := a.byQueue[key]
	if c == nil && len(a.byQueue) >= queueCellsMost {
		key = queueCellKey{a.overflow(q.port).index, 0}
		c = a.byQueue[key]
	}
	if c == nil {
		const fine = 3 // buckets of latency 12 % wide
		c = newCell(fine)
		a.byQueue[key] = c
	}
	q.lastTID, q.lastCell = tid, c
	return c
}
