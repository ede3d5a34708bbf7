package tracer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/rdmatrace/rdmatrace/bpf"
)

// sites are where the programs take stacks (bpf/stack.bpf.h). They recognise one that
// they took before by its next callers, once they are told where those are.
type sites struct {
	posts, threads *ebpf.Map
	round          *ebpf.Variable

	mu  sync.Mutex
	err error // the first
}

func (k *kernel) stackSites() *sites {
	return &sites{
		posts: k.coll.Maps[bpf.RdmaMapPostSites], threads: k.coll.Maps[bpf.RdmaMapThreadSites],
		round: k.coll.Variables[bpf.RdmaVarStacksRound],
	}
}

func (s *sites) addPost(rec *stackRecord, at []uint64)   { s.add(s.posts, rec, at) }
func (s *sites) addThread(rec *stackRecord, at []uint64) { s.add(s.threads, rec, at) }

// add tells the programs by which way a stack was met: at is where its callers'
// return addresses lie. They wait for that, so nothing of the site changes meanwhile.
func (s *sites) add(m *ebpf.Map, rec *stackRecord, at []uint64) {
	if m == nil {
		return
	}
	var site bpf.RdmaSite
	err := m.Lookup(rec.site, &site)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return // another site took its place
	}
	if err == nil && int(site.Ways) < len(site.Way) && site.Latest == rec.id {
		site.Way[site.Ways] = wayOf(rec, at)
		site.Ways++
		err = m.Update(rec.site, &site, ebpf.UpdateExist)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		s.failed(fmt.Errorf("tell the programs who calls: %w", err))
	}
}

// wayOf is the way of a stack by its next callers. The return address that a site of a
// post has in its key tells nothing more, and one in a register cannot be looked at.
func wayOf(rec *stackRecord, at []uint64) bpf.RdmaSiteWay {
	w := bpf.RdmaSiteWay{Id: rec.id}
	from := uint64(0)
	for i, a := range at {
		if a == 0 {
			continue
		}
		caller, ok := rec.snapshot.Word(a)
		if !ok || int(w.Callers) == len(w.Caller) {
			break
		}
		if i == 0 && caller == rec.site.Ip {
			continue
		}
		if w.Callers == 0 {
			from = a
		}
		d := a - from
		if d%8 != 0 || d/8 >= siteWords {
			break
		}
		w.Caller[w.Callers], w.At[w.Callers] = caller, uint8(d/8)
		w.Callers++
		w.From, w.Words = uint32(from-rec.snapshot.SP), uint16(d/8+1)
	}
	return w
}

// siteWords is as in bpf/thread.bpf.h: so far the callers may lie apart.
const siteWords = 64

// forgetThreads makes the programs send every stack of a thread again.
func (s *sites) forgetThreads() {
	if s.round == nil {
		return
	}
	var n uint32
	err := s.round.Get(&n)
	if err == nil {
		err = s.round.Set(n + 1)
	}
	if err != nil {
		s.failed(fmt.Errorf("forget the stacks of threads: %w", err))
	}
}

func (s *sites) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *sites) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return []string{"some stacks may be those of others: " + s.err.Error()}
}
