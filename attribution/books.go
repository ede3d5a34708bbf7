package attribution

// settlement is how a pending work request leaves its queue.
type settlement uint8

const (
	settledMeasured    settlement = iota // matched to a completion of its own
	settledRetired                       // unsignalled, retired by a later completion
	settledFlushed                       // completed in error
	settledOutstanding                   // its queue or the window ended
	settledLost                          // its records were dropped by us
	settledExcluded                      // its place was not proven
	settledRefused                       // the posting call failed: it was never posted
)

// ledger keeps the books, and what has left a queue since the sink was told.
type ledger struct {
	books    [2]Books // of sends, of receives
	left     int32
	leftSize uint64
}

func side(receive bool) int {
	if receive {
		return 1
	}
	return 0
}

// post enters a work request.
func (l *ledger) post(q *workQueue) { l.books[side(q.receive)].Posted++ }

// lose enters n work requests of which no record arrived.
func (l *ledger) lose(receive bool, n int64) {
	b := &l.books[side(receive)]
	b.Posted += n
	b.Lost += n
}

// settle closes the entry of p, which is in q for the last time.
func (l *ledger) settle(q *workQueue, p *pending, how settlement) {
	b := &l.books[side(q.receive)]
	if p.is&isBeforeLoss != 0 && how == settledExcluded {
		how = settledLost
	}
	switch how {
	case settledMeasured:
		b.Completed++
		b.Bytes += int64(p.bytes)
	case settledRetired:
		b.Completed++
		b.Unsignalled++
		b.Bytes += int64(p.bytes)
	case settledFlushed:
		b.Flushed++
	case settledOutstanding:
		b.Outstanding++
	case settledLost:
		b.Lost++
	case settledExcluded:
		b.Excluded++
	case settledRefused:
		b.Posted--
	}
	if p.is&isAnnounced != 0 {
		q.inFlight--
		l.left++
		l.leftSize += uint64(p.bytes)
	}
}

// total adds both sides up.
func (l *ledger) total() (sum Books) {
	for _, b := range l.books {
		sum.Posted += b.Posted
		sum.Completed += b.Completed
		sum.Outstanding += b.Outstanding
		sum.Flushed += b.Flushed
		sum.Lost += b.Lost
		sum.Excluded += b.Excluded
		sum.Unsignalled += b.Unsignalled
		sum.Bytes += b.Bytes
	}
	return sum
}
