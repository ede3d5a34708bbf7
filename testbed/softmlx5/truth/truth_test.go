package truth

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// testdata/truth.csv is the log of: ib_send_lat -n 5 -e -s 16 with
// SLOW_STAGE=rnr, ib_send_bw -n 8 --use-srq -Q 4 -s 4096 with
// SLOW_STAGE=retransmit, ib_read_lat -n 6 with ERR_EVERY=5.
const fixture = "testdata/truth.csv"

func mustRead(t *testing.T, path string) []Row {
	t.Helper()
	rows, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func readAll(r io.Reader) (rows []Row, cut bool, err error) {
	tr, err := NewReader(r)
	if err != nil {
		return nil, false, err
	}
	for {
		row, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return rows, tr.Cut(), nil
		}
		if err != nil {
			return rows, tr.Cut(), err
		}
		rows = append(rows, row)
	}
}

func TestReadFileColumns(t *testing.T) {
	rows := mustRead(t, fixture)
	want := map[int]Row{
		0: {Kind: Recv, PID: 14646, QPN: 256, CQN: 1025, Opcode: "RECV", Bytes: 16,
			Arrive: 2173727445771, CQE: 2173727461264},
		1: {Kind: Event, PID: 14646, CQN: 1025, Opcode: "EVENT",
			CQEDue: 2173727461264, CQE: 2173727472013, CQEIndex: 1},
		27: {Kind: Send, PID: 14664, QPN: 257, CQN: 1026, WQE: 3, Opcode: "SEND", Bytes: 16,
			Flags: Signaled | Inline | Slow | RNR, Doorbell: 2173731168920, Wire: 2173731168920,
			ArriveDue: 2173731270921, Arrive: 2173731271139, CQEDue: 2173731271921,
			CQE: 2173731278321, Injected: 100000, CQEIndex: 3, Index: 3},
		44: {Kind: Send, PID: 14757, QPN: 258, CQN: 1029, WQE: 1, Opcode: "SEND", Bytes: 4096,
			Batch: 1, Doorbell: 2174230917590, Wire: 2174230917917, ArriveDue: 2174230920244,
			Arrive: 2174230992577, CQEDue: 2174230921244, CQE: 2174230998697, CQEIndex: -1,
			Index: 1},
	}
	for i, w := range want {
		if d := cmp.Diff(w, rows[i]); d != "" {
			t.Errorf("row %d (-want +got):\n%s", i, d)
		}
	}
}

func TestReadFileCounts(t *testing.T) {
	got := map[string]int{}
	for _, r := range mustRead(t, fixture) {
		got[fmt.Sprint(r.Kind, " ", r.Opcode)]++
		for i := range len(flagLetters) {
			if r.Flags.Has(1 << i) {
				got[flagLetters[i:i+1]]++
			}
		}
	}
	want := map[string]int{
		"S SEND": 18, "S READ": 5, "R RECV": 18, "E EVENT": 20,
		"s": 17, "i": 10, "S": 5, "E": 1, "r": 2, "t": 3, "q": 8,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestQueues(t *testing.T) {
	rows := mustRead(t, fixture)
	queues := Queues(rows)
	got := map[Queue][]uint64{}
	total := 0
	for q, rs := range queues {
		for _, r := range rs {
			if r.Queue() != q {
				t.Errorf("row of %v in %v", r.Queue(), q)
			}
			got[q] = append(got[q], r.Index)
			total++
		}
	}
	want := map[Queue][]uint64{
		{14646, 256, Send}: {0, 1, 2, 3, 4},
		{14646, 256, Recv}: {0, 1, 2, 3, 4},
		{14664, 257, Send}: {0, 1, 2, 3, 4},
		{14664, 257, Recv}: {0, 1, 2, 3, 4},
		{14757, 258, Send}: {0, 1, 2, 3, 4, 5, 6, 7},
		// From a shared queue, whose places come in any order: no Index.
		{14742, 259, Recv}: {0, 0, 0, 0, 0, 0, 0, 0},
		{14801, 261, Send}: {0, 1, 2, 3, 4},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if total+20 != len(rows) {
		t.Errorf("%d rows in queues and 20 events, of %d rows", total, len(rows))
	}
}

// sendLine is a request on QP 5 at a WQE index.
func sendLine(pid int, wqe uint64) string {
	return fmt.Sprintf("S,%d,5,6,%d,WRITE,8,s,0,1,1,1,1,1,1,0,0\n", pid, wqe&0xffff)
}

func TestIndexUnwraps(t *testing.T) {
	var b strings.Builder
	var want []uint64
	b.WriteString(header + "\n")
	// Requests of 1 to 16 blocks, three times around; a second process whose
	// QP has the same number starts late and wraps by itself.
	for i, at := 0, uint64(65000); at < 200000; i++ {
		b.WriteString(sendLine(1, at))
		want = append(want, at)
		at += uint64(i%16 + 1)
	}
	b.WriteString(sendLine(2, 65535) + sendLine(2, 3) + sendLine(1, want[0]))
	rows, cut, err := readAll(strings.NewReader(b.String()))
	if err != nil || cut {
		t.Fatal(err, cut)
	}
	queues := Queues(rows)
	var got []uint64
	for _, r := range queues[Queue{1, 5, Send}] {
		got = append(got, r.Index)
	}
	// The last one is the queue after a reset: still ahead of what was.
	last := got[len(got)-1]
	if last <= want[len(want)-1] || last&0xffff != 65000 {
		t.Errorf("after a reset: %d after %d", last, want[len(want)-1])
	}
	if d := cmp.Diff(want, got[:len(got)-1]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	second := queues[Queue{2, 5, Send}]
	if second[0].Index != 65535 || second[1].Index != 65539 {
		t.Errorf("second process: %d, %d", second[0].Index, second[1].Index)
	}
}

func TestCutAtEveryByte(t *testing.T) {
	data, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	whole := mustRead(t, fixture)
	start := strings.IndexByte(string(data), '\n') + 1
	for n := start; n <= len(data); n++ {
		rows, cut, err := readAll(iotest.HalfReader(strings.NewReader(string(data[:n]))))
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		lines := strings.Count(string(data[start:n]), "\n")
		if len(rows) != lines || cut != (data[n-1] != '\n') {
			t.Fatalf("cut at %d: %d rows, cut %v; expected %d", n, len(rows), cut, lines)
		}
		if lines > 0 && rows[lines-1] != whole[lines-1] {
			t.Fatalf("cut at %d: row %d differs", n, lines-1)
		}
	}
}

func TestErrors(t *testing.T) {
	good := sendLine(1, 0)
	for _, tc := range []struct{ name, log, want string }{
		{"empty", "", "unexpected EOF"},
		{"cut header", header[:20], "unexpected EOF"},
		{"another file", "a,b,c\n", "not a truth log"},
		{"kind", header + "\n" + good + "X" + good[1:], "line 3: unknown kind"},
		{"few columns", header + "\nS,1,2\n", "line 2: 3 columns"},
		{"many columns", header + "\n" + good[:len(good)-1] + ",7\n", "more than 17"},
		{"number", header + "\n" + strings.Replace(good, "S,1,", "S,x,", 1), "column 2"},
		{"range", header + "\n" + strings.Replace(good, ",5,6,", ",5,-6,", 1), "column 4"},
		{"flag", header + "\n" + strings.Replace(good, ",s,", ",sz,", 1), "unknown flag 'z'"},
		{"long line", header + "\n" + strings.Repeat("9", 5000) + "\n", "longer than"},
		{"very long line", header + "\n" + strings.Repeat("9", 2<<20) + "\n", "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := readAll(strings.NewReader(tc.log))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if _, err := ReadFile("testdata/none.csv"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestFlagsString(t *testing.T) {
	for f, want := range map[Flags]string{
		0: "-", Signaled | Inline: "si", Failed | SharedQueue: "Eq",
		Slow | Retransmitted | Signaled: "sSt",
	} {
		if got := f.String(); got != want {
			t.Errorf("%d: %q, want %q", f, got, want)
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	log := header + "\n" + strings.Repeat(sendLine(1, 7), 2000)
	tr, err := NewReader(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := tr.Next(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations per row", allocs)
	}
}

func FuzzReader(f *testing.F) {
	data, err := os.ReadFile(fixture)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data[:2000]))
	f.Add(header + "\n" + sendLine(1, 65535) + sendLine(1, 0))
	f.Fuzz(func(t *testing.T, log string) {
		rows, _, err := readAll(strings.NewReader(log))
		if len(rows) > strings.Count(log, "\n") {
			t.Errorf("%d rows from %d lines", len(rows), strings.Count(log, "\n"))
		}
		_ = err
	})
}
