package locate

import (
	"fmt"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func openf(t *testing.T, p string) *object.File {
	f, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	im, err := object.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return im
}
func TestTmp(t *testing.T) {
	dir := os.Getenv("LIBS")
	if dir == "" {
		t.Skip()
	}
	vs, _ := filepath.Glob(dir + "/libibverbs.so.1.*")
	v := openf(t, vs[0])
	t0 := time.Now()
	m, err := learnSlots(v)
	t.Log(m, err, m.release(), time.Since(t0))
	if err != nil {
		return
	}
	l, _ := filepath.Glob(dir + "/libibverbs/*.so")
	l2, _ := filepath.Glob(dir + "/lib*.so.*.*")
	l = append(l, l2...)
	for _, p := range l {
		t0 := time.Now()
		im := openf(t, p)
		if !im.Imports("verbs_set_ops") {
			continue
		}
		ts, err := opsTables(im, m)
		t.Log(filepath.Base(p), err, time.Since(t0))
		t1 := time.Now()
		bs, err := builders(im)
		s := ""
		for _, b := range bs {
			s += " " + b.verb.String() + "=" + fmt.Sprintf("%x", b.vaddr)
		}
		t.Log(len(bs), err, time.Since(t1), s)
		for _, x := range ts {
			s := ""
			for _, v := range []Verb{PollCQ, PostRecv, PostSend, PostSRQRecv, ReqNotifyCQ} {
				if f, ok := x.funcs[v]; ok {
					s += " " + v.String() + "="
					if f.symbol != "" {
						s += f.symbol
					} else {
						s += fmt.Sprintf("%x", f.vaddr)
					}
				}
			}
			t.Log(fmt.Sprintf("%x", x.vaddr), x.how, s)
		}
	}
}
