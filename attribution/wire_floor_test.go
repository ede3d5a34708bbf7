package attribution

import "testing"

// A floor is that of all WRs whose done is as well known, not of those that
// were slow enough for their doubt to look small.
func TestFloorIsNotOfTheSlow(t *testing.T) {
	for _, c := range []struct {
		name        string
		doubt       uint64
		taught      int64 // of 1,000
		least, most uint64
	}{
		{"no doubt", 0, 1000, 5_500, 6_500},
		{"1.2 us of doubt", 1_200, 1000, 5_500, 6_500},
		// Nobody knows the floor then: the slow ones do not, either.
		{"5 us of doubt", 5_000, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f floor
			for i := range 1000 {
				wire := uint64(6_000)
				if i%20 == 19 {
					wire = 60_000
				}
				m := measured{postEnd: 1_000, done: 1_000 + wire}
				m.doneLow, m.doneHigh = m.done-c.doubt/2, m.done+c.doubt/2
				f.seen++
				if f.certain(&m) {
					f.learn(0, 0, 64, wire)
				}
			}
			if f.count != c.taught {
				t.Errorf("%d of 1,000 taught, expected %d", f.count, c.taught)
			}
			if p := f.points[floorPointOf(64)]; p != nil {
				if got := p.wire.rank(p.count / floorQuantile); got < c.least || got > c.most {
					t.Errorf("the floor is %d ns, expected %d to %d", got, c.least, c.most)
				}
			}
		})
	}
}
