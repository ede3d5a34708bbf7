package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rdmatrace": main})
}

// TestScripts runs testdata/script: the command line as its users type it.
func TestScripts(t *testing.T) {
	// Others than root have to reach the program in it.
	root, err := os.MkdirTemp("", "rdmatrace-script-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 && testenv.CI() {
		t.Fatal("some scripts need root")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		WorkdirRoot:         root,
		Setup:               setUpScript,
		Deadline:            time.Now().Add(10 * time.Minute),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(c string) (bool, error) {
			if c == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", c)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"oneline": oneLineOfStderr, "noleftovers": noLeftovers, "spawn": spawn,
		},
	})
}

// setUpScript makes capture files, whole and not, and a copy of the program that anybody can run.
func setUpScript(env *testscript.Env) error {
	whole, err := captureFile()
	if err != nil {
		return err
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0x10
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	dir := filepath.Join(env.WorkDir, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "rdmatrace"), self, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"whole.rdt": whole, "cut.rdt": whole[:len(whole)-30], "stump.rdt": whole[:20], "flipped.rdt": flipped,
		"empty.rdt": nil, "text.rdt": []byte("this is no capture\n"),
	} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// captureFile is of one queue pair with a few writes.
func captureFile() ([]byte, error) {
	const (
		pid, qp, cq = 4242, 0x1000, 0x2000
		begin       = 1_000_000_000
	)
	ctx := &event.Context{
		Tool: "test", Host: event.Host{Name: "host", Arch: "x86_64", CPUs: 2},
		Window:  event.Window{Begin: begin, End: begin + 1_000_000},
		Targets: []event.Target{{PID: pid, Comm: "job", Rank: -1}},
		Devices: []event.Device{{Name: "mlx5_0", Ports: []event.Port{{Number: 1, RateBPS: 100e9}}}},
	}
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		return nil, err
	}
	if err := w.WriteContext(ctx); err != nil {
		return nil, err
	}
	at := func(t uint64, k event.Kind) event.Event {
		return event.Event{Time: begin + t, PID: pid, TID: pid, Kind: k}
	}
	found := at(0, event.KindQP)
	found.Object = &event.Object{Event: event.ObjectFound, QP: &event.QP{Addr: qp, SendCQ: cq, RecvCQ: cq, Num: 0x105, Type: 2, State: 3, MaxSendWR: 16, SigAll: 1}}
	events := []event.Event{found}
	for i := range uint64(50) {
		t := 1000 + i*10_000
		wr, end, done := at(t, event.KindWR), at(t+300, event.KindPostEnd), at(t+5000, event.KindCompletion)
		wr.Verb = event.Verb{QP: qp, QPNum: 0x105, WRID: i + 1, Begin: wr.Time, Bytes: 4096, NumSGE: 1, Count: 1, Call: uint32(i), SendFlags: 2}
		end.Verb = event.Verb{QP: qp, QPNum: 0x105, Begin: wr.Time, Count: 1, Call: uint32(i), BadIndex: -1}
		done.Verb = event.Verb{CQ: cq, QPNum: 0x105, WRID: i + 1, Begin: done.Time - 50, LastEmpty: done.Time - 100, LastEmptyTID: pid, Count: 1, Opcode: 1}
		events = append(events, wr, end, done)
	}
	for i := range events {
		if err := w.Write(&events[i]); err != nil {
			return nil, err
		}
	}
	err = w.Close(ctx)
	return b.Bytes(), err
}

// oneline PATTERN: stderr is exactly one line, and contains PATTERN.
func oneLineOfStderr(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: oneline TEXT")
	}
	text := ts.ReadFile("stderr")
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.HasPrefix(text, "rdmatrace: ") {
		ts.Fatalf("stderr is not one line of rdmatrace:\n%s", text)
	}
	if !strings.Contains(text, args[0]) {
		ts.Fatalf("%q is not in: %s", args[0], text)
	}
}

// noleftovers DIR...: nothing half-written is left there.
func noLeftovers(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: noleftovers DIR...")
	}
	for _, dir := range args {
		entries, err := os.ReadDir(ts.MkAbs(dir))
		ts.Check(err)
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".tmp") && name != ".tmp" { // testscript's own
				ts.Fatalf("%s was left in %s", e.Name(), dir)
			}
		}
	}
}

// spawn NAME PROGRAM ARGS: start a program until the script ends; $NAME is its process ID.
func spawn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: spawn NAME PROGRAM ARGS")
	}
	cmd := exec.Command(args[1], args[2:]...)
	ts.Check(cmd.Start())
	ts.Setenv(args[0], fmt.Sprint(cmd.Process.Pid))
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
