// Command oracle-cgo uses verbs from Go: its goroutines move between threads,
// their stacks grow and move, and C is called on other stacks. Like oracle-odd it
// writes a pattern and compares what has arrived; SIGTERM ends it, and it
// says "right".
package main

/*
#cgo CFLAGS: -D_GNU_SOURCE -I${SRCDIR}/../.. -I${SRCDIR}/../../../softmlx5/tests
#cgo LDFLAGS: -libverbs
#include "job.c"
#include "rdma.c"

static int post(struct link *l, uint64_t id)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	link_request(l, &wr, &sge, IBV_WR_RDMA_WRITE, l->size, id);
	wr.send_flags = IBV_SEND_SIGNALED;
	return ibv_post_send(l->qp, &wr, &bad);
}

// The id of a completion, 0: none yet, -1: one that failed.
static int64_t reap(struct link *l)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(l->cq, 1, &wc);

	return n < 0 || (n && wc.status != IBV_WC_SUCCESS) ? -1 : n ? (int64_t)wc.wr_id : 0;
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	workers = 4
	words   = 512
)

func main() {
	var r C.struct_rdma
	C.rdma_open(&r)
	links := make([]*C.struct_link, workers)
	for i := range links {
		links[i] = (*C.struct_link)(C.calloc(1, C.sizeof_struct_link))
		C.link_open(&r, links[i], nil, nil, 16, 8*words)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Println("running")
	var stop atomic.Bool
	var all sync.WaitGroup
	for _, l := range links {
		all.Go(func() {
			for id := uint64(1); !stop.Load(); id++ {
				work(l, id)
			}
		})
	}
	<-asked
	stop.Store(true)
	all.Wait()
	fmt.Println("right")
}

// work makes a round, from a stack that is deeper each time, up to a point.
func work(l *C.struct_link, id uint64) {
	source := unsafe.Slice((*uint64)(unsafe.Pointer(l.buf)), 2*words)
	target := source[words:]
	for i := range words {
		source[i] = id<<20 ^ uint64(i)
	}
	deep(int(id%64), func() {
		check(C.post(l, C.uint64_t(id)) == 0, "post")
	})
	deep(int(id%61), func() {
		for {
			got := C.reap(l)
			if got == 0 {
				runtime.Gosched()
				continue
			}
			check(uint64(got) == id, "completion")
			return
		}
	})
	for i := range words {
		check(target[i] == id<<20^uint64(i), "data")
	}
	garbage = make([]byte, 4096)
}

var garbage []byte // work for the collector

func deep(n int, f func()) {
	var room [512]byte
	if n == 0 {
		f()
		return
	}
	deep(n-1, f)
	runtime.KeepAlive(&room)
}

func check(right bool, what string) {
	if !right {
		panic("wrong: " + what)
	}
}
