package main

import (
	"io"
	"slices"
	"sync"
	"time"
)

// spoolLimit is how many bytes may wait for a file: at 10 bytes an event and 100,000
// work requests per second, 5 s of it.
const spoolLimit = 16 << 20

// spool writes behind the back of who writes to it. The rings are drained by
// the goroutine that fills the capture file, and overflow within a second where
// that waits for a disk that flushes or for a slow reader of a pipe.
type spool struct {
	w     io.Writer
	limit int
	done  chan struct{} // the goroutine has ended

	mu      sync.Mutex
	changed *sync.Cond // of what follows
	queue   [][]byte
	waiting int // bytes that are not written yet
	closed  bool
	err     error // of w
	full    time.Duration
}

func newSpool(w io.Writer, limit int) *spool {
	s := &spool{w: w, limit: limit, done: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Write takes a copy of p. It waits only where more than the limit would be
// waiting; an error is that of an earlier write.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.over(len(p)) {
		began := time.Now()
		for s.err == nil && s.over(len(p)) {
			s.changed.Wait()
		}
		s.full += time.Since(began)
	}
	if s.err != nil {
		return 0, s.err
	}
	s.queue = append(s.queue, slices.Clone(p))
	s.waiting += len(p)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *spool) over(n int) bool { return s.waiting > 0 && s.waiting+n > s.limit }

// flush waits until everything is written, or fails.
func (s *spool) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting > 0 && s.err == nil {
		s.changed.Wait()
	}
	return s.err
}

// Close is flush, and the end of writing. It does not close w.
func (s *spool) Close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.done
	return s.err
}

// stalled is how long Write has waited so far.
func (s *spool) stalled() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

func (s *spool) run() {
	defer close(s.done)
	for p := s.next(); p != nil; p = s.next() {
		_, err := s.w.Write(p)
		s.wrote(len(p), err)
	}
}

// next is what to write, nil at the end or after an error.
func (s *spool) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.changed.Wait()
	}
	if len(s.queue) == 0 || s.err != nil {
		return nil
	}
	p := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	return p
}

func (s *spool) wrote(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting -= n
	s.err = err
	s.changed.Broadcast()
}
