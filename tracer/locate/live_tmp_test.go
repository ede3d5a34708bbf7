package locate

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestLiveTmp(t *testing.T) {
	pid, _ := strconv.Atoi(os.Getenv("PID"))
	if pid == 0 {
		t.Skip()
	}
	t0 := time.Now()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("open", time.Since(t0))
	for i := 0; i < 2; i++ {
		s, err := p.Scan(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", s.Stats)
		if i == 1 {
			for _, l := range s.Libraries {
				t.Logf("%+v", *l)
			}
			for _, f := range s.Functions {
				if f.Live || f.Library.Role&RoleProvider == 0 {
					t.Logf("%s %s %#x %#x %v %s", f.Verb, f.Library.Path, f.Offset, f.Size, f.Live, f.Source)
				}
			}
		}
		t.Logf("%+v", s.Contexts)
		for _, q := range s.QPs {
			t.Logf("%+v", q)
		}
		for _, q := range s.CQs {
			t.Logf("%+v", q)
		}
		t.Log(s.Notes)
		for _, m := range s.MLX5 {
			t.Logf("%+v", m)
		}
	}
}
