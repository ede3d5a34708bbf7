package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMerge: each run replaces its kernel's column, keeps the others, and is
// the same when repeated; rows keep the order of the tests.
func TestMerge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kernels.md")
	say := func(kernel, version, output string) string {
		t.Helper()
		if err := run(strings.NewReader(output), file, kernel, version); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(string(b), "\n| ")
		return table
	}
	say("6.12", "6.12.1", "noise\nfeature\tuprobes\tuprobe_multi\nfeature\tloads\t3 of 3\n--- PASS: TestA (0.1s)\n    --- PASS: TestA/sub (0.1s)\n")
	say("6.18", "6.18.9", "feature\tuprobes\tuprobe_multi\n")
	got := say("6.1", "6.1.7", "feature\tuprobes\tone by one\nfeature\twhy\tno a|b\nfeature\tloads\t2 of 3\n--- FAIL: TestA (0.1s)\n")
	want := "| 6.1 | 6.12 | 6.18 |\n|---|---|---|---|\n" +
		"| version | 6.1.7 | 6.12.1 | 6.18.9 |\n" +
		"| uprobes | one by one | uprobe_multi | uprobe_multi |\n" +
		"| why | no a/b |  |  |\n" +
		"| loads | 2 of 3 | 3 of 3 |  |\n" +
		"| test TestA | **failed** | passed |  |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = say("6.1", "6.1.8", "feature\tuprobes\tone by one\nfeature\tloads\t3 of 3\n")
	want = "| 6.1 | 6.12 | 6.18 |\n|---|---|---|---|\n" +
		"| version | 6.1.8 | 6.12.1 | 6.18.9 |\n" +
		"| uprobes | one by one | uprobe_multi | uprobe_multi |\n" +
		"| loads | 3 of 3 | 3 of 3 |  |\n" +
		"| test TestA |  | passed |  |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestOrder: kernels stand in the order of their numbers.
func TestOrder(t *testing.T) {
	names := []string{"newest", "6.12-rt", "6.1", "5.10", "6.12", "6.1-rt"}
	slices.SortFunc(names, compareKernels)
	if want := []string{"5.10", "6.1", "6.1-rt", "6.12", "6.12-rt", "newest"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestNothingSaid: a guest that died leaves the file alone.
func TestNothingSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kernels.md")
	if err := run(strings.NewReader("panic: out of memory\n"), file, "6.1", "6.1.7"); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}
