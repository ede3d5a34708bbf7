package locate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

const (
	noPath = "no instruction was found that runs for a completion only, going by what it returns (0 unresolved jumps)"
	// asksKernel is ibv_cmd_poll_cq, which copies what the kernel hands out.
	asksKernel      = "poll_cq 0x8060 of libibverbs: no instruction was found that runs for a completion only, going by what it returns (1 unresolved jumps)"
	asksKernelARM64 = "poll_cq 0x71b0 of libibverbs: no instruction was found that runs for a completion only, going by what it returns (1 unresolved jumps)"
)

// pollPaths44 is where the poll functions of Debian's ibverbs-providers 44.0-2 on
// amd64 consume a completion, by build-id; docs/polling.md has it in words.
// libmana's only says that it is not supported. libirdma's start_poll and next_poll
// return 0 where another function returned 1, which is not followed.
var pollPaths44 = map[string][]string{
	"00f262c8fd7ee5cc4cc456cbd33ae6cbc20c3816": {"poll_cq 0x3160: [0x3267] emulated"}, // libbnxt_re
	"5dd9cebee76a307fcb21da4ab8564bcda94f52dc": {"poll_cq 0x32d0: [0x37b8] emulated"}, // libcxgb4
	"20460b409669971e8ba66d597f366dc904bcc74a": { // libefa
		"poll_cq 0x60c0: [0x62ac] emulated", "start_poll 0x3480: [0x3606] single-stepped", "next_poll 0x4030: [0x41cb] single-stepped"},
	"c958e41358ffb249165e5b9431624c2a476c40d3": {"poll_cq 0x3c40: [0x3d47] single-stepped"}, // liberdma
	"91a04ec419a9f118ecd4bca29f53509750d109a0": { // libhfi1verbs
		asksKernel, "poll_cq 0x2b50: [0x2b9d 0x2be0] emulated"},
	"efa6667daecad26d7b41c87a04ab398a00185867": { // libhns
		"poll_cq 0x4b80: [0x4d83 0x4f0e] emulated", "start_poll 0x75c0: [0x77a7 0x78fa 0x7945 0x7963] emulated", "next_poll 0x71d0: [0x73c8] single-stepped"},
	"fe263d0d13fcb34e4b463d8e7ee2e4c20ed5286e": { // libipathverbs
		asksKernel, "poll_cq 0x2b40: [0x2b8d 0x2bd0] emulated"},
	"5d1401a94c38379d01b07e0e60865baa663cc555": { // libirdma
		"poll_cq 0x5c80: [0x5e34 0x5f8f 0x5fdc 0x60b2 0x633e] single-stepped", "start_poll 0x5700: " + noPath, "next_poll 0x5750: " + noPath},
	"af77e340598e606df672aa68426f27b5fe2752e0": {"poll_cq 0x1410: " + noPath},                                                  // libmana
	"8dd6117efdce4c4b2fb820ecc53e48f73dbe9a1a": {"poll_cq 0x3300: [0x3564] emulated"},                                          // libmlx4
	"800c6ca768baceb592682738a03643f11379cbdd": {"poll_cq 0x1da50: [0x1de55] emulated", "poll_cq 0x1e880: [0x1ebbd] emulated"}, // libmlx5
	"e7fc7b0bf5927dce95eca82db972b56a2b17dc56": {"poll_cq 0x2870: [0x2aed] emulated"},                                          // libmthca
	"a53ce35b6317f8b9803ecdd9ea1df7919abefc9b": {"poll_cq 0x5580: [0x56ad] emulated"},                                          // libocrdma
	"574fba6bf1c334c672534d823810f2e42dcfd4eb": {"poll_cq 0x6be0: [0x6cc6] single-stepped"},                                    // libqedr
	"c3feca97151b106036f064a5d7f33086033ca9eb": { // librxe
		"poll_cq 0x2ca0: [0x2d27] emulated", "start_poll 0x2970: [0x29db] single-stepped", "next_poll 0x2d80: [0x2dd9] single-stepped"},
	"1bd48c6aabf02bffc9b5b05cdbe3158eedce1bc8": {"poll_cq 0x2e40: [0x2f04] emulated"}, // libsiw
	"eefc2012cadf46c9c5ba5a696a4f0274c1571f55": {"poll_cq 0x23e0: [0x2555] emulated"}, // libvmw_pvrdma
}

// pollPaths44ARM64 is pollPaths44 on arm64.
var pollPaths44ARM64 = map[string][]string{
	"35951b9a675c465d30f1abdac70aedef2cc8d71d": {"poll_cq 0x24d0: [0x25d0] emulated"},                                                                                                   // libbnxt_re
	"92145971b7e2d66c43521d44f3aab98f26ad9d6b": {"poll_cq 0x2590: [0x29ac] emulated"},                                                                                                   // libcxgb4
	"6ddc9f299708ffcec2e6d2e6faf9097527a21f3c": {"poll_cq 0x4c24: [0x4e1c] emulated", "start_poll 0x22b0: [0x2418] single-stepped", "next_poll 0x2d90: [0x2f04] single-stepped"},        // libefa
	"7e8e054a5f9665bc9e75efc0d28597fd9e085f41": {"poll_cq 0x2ab0: [0x2bb0] single-stepped"},                                                                                             // liberdma
	"038f5a4d9b40e7f24bd8f5690ef88af75784239b": {asksKernelARM64, "poll_cq 0x2154: [0x21d8] emulated"},                                                                                  // libhfi1verbs
	"6ad002addbbbc9071d85915f18b6ac13676f7a5d": {"poll_cq 0x4270: [0x4458 0x45a8] emulated", "start_poll 0x69b4: [0x6b78] single-stepped", "next_poll 0x6644: [0x6808] single-stepped"}, // libhns
	"d7fb62b9266662156c52436272e37485333eeb41": {asksKernelARM64, "poll_cq 0x2144: [0x21c8] emulated"},                                                                                  // libipathverbs
	"fbdd7c70b9c175aa5526d750cee6e88dc5933e78": {"poll_cq 0x4d80: [0x4ed4 0x4f08 0x5124 0x51e0] single-stepped", "start_poll 0x4774: " + noPath, "next_poll 0x47f0: " + noPath},         // libirdma
	"d63c5d3f69d7abfdbdf65fc1816321e9dc674a3f": {"poll_cq 0x1350: " + noPath},                                                                                                           // libmana
	"a13f331233fa9a293320d115f1b86f671464a269": {"poll_cq 0x2fb4: [0x31f0] emulated"},                                                                                                   // libmlx4
	"970fc4820bc389e9316a45bb774ed676d98c5cbe": {"poll_cq 0x1ade0: [0x1b08c] emulated", "poll_cq 0x1ba44: [0x1bcc4] emulated"},                                                          // libmlx5
	"fed9a0cfb40ac84012e22655531af7378261d59a": {"poll_cq 0x1d00: [0x2108 0x2260] emulated"},                                                                                            // libmthca
	"a478fd3983bec735274891750a921716e2525bb3": {"poll_cq 0x3eb4: [0x3fa8] emulated"},                                                                                                   // libocrdma
	"2888fc1b07c788afc34f7f9b3aa6e577e6bb2066": {"poll_cq 0x5b14: [0x5c18 0x5e78] single-stepped"},                                                                                      // libqedr
	"7a03d18a29e4276cd1281678b8e1dfcbd47c23d5": {"poll_cq 0x2270: [0x22f8] emulated", "start_poll 0x1f90: [0x1fd4] single-stepped", "next_poll 0x2360: [0x23c4] emulated"},              // librxe
	"f0082c92106f78609bc71a9d53e62931757bf0d8": {"poll_cq 0x1e10: [0x1eb8] emulated"},                                                                                                   // libsiw
	"80f18397f3f30e039014edf560674935958cea65": {"poll_cq 0x16e4: [0x1860] emulated"},                                                                                                   // libvmw_pvrdma
}

// TestPollPathsOfProviders analyses the poll functions of every installed provider, or of
// those in the folder of libibverbs.so.1 that RDMATRACE_PROVIDERS names. Of builds that
// are not known the analysis has to end, in one way or the other.
func TestPollPathsOfProviders(t *testing.T) {
	verbs, providers := providersAt(t, os.Getenv("RDMATRACE_PROVIDERS"))
	v := &library{file: openObject(t, verbs), Library: Library{Path: verbs, Role: RoleVerbs}}
	known, of := 0, 0
	for _, path := range providers {
		t.Run(filepath.Base(path), func(t *testing.T) {
			l := &library{file: openObject(t, path), Library: Library{Path: path, Role: RoleProvider}}
			got := pollPaths(t, v, l)
			t.Log(got)
			all := pollPaths44
			if l.file.Arch == object.ArchARM64 {
				all = pollPaths44ARM64
			}
			want, ok := all[l.file.BuildID]
			if ok {
				known, of = known+1, len(all)
			}
			if ok && !slices.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
	// A system has them all of one release.
	if known != of {
		t.Errorf("%d of %d providers are those of Debian's ibverbs-providers 44.0", known, of)
	}
}

func providersAt(t *testing.T, folder string) (verbs string, providers []string) {
	if folder == "" {
		return installed(t)
	}
	return filepath.Join(folder, "libibverbs.so.1"), globAll(filepath.Join(folder, "libibverbs/*.so"))
}

// pollPaths tell of each poll function of a provider where it was found to consume a
// completion, going by the best candidate.
func pollPaths(t *testing.T, verbs, provider *library) (out []string) {
	t.Helper()
	c := &collector{}
	p := &Process{libs: []*library{verbs, provider}}
	for _, l := range p.libs {
		p.static(l, true, c)
	}
	for _, f := range c.sorted() {
		find := pollpath.FindCurrent
		switch f.Verb {
		case PollCQ:
			find = pollpath.Find
		case StartPoll, NextPoll:
		default:
			continue
		}
		file, of := provider.file, ""
		if f.Library == &verbs.Library {
			file, of = verbs.file, " of libibverbs"
		}
		out = append(out, fmt.Sprintf("%v %#x%s: %s", f.Verb, f.Vaddr, of, tellPath(find(pollpath.ImageOf(file), f.Vaddr))))
	}
	return out
}

func tellPath(candidates []pollpath.Candidate, err error) string {
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		return why
	}
	how := "single-stepped"
	if candidates[0].Emulated {
		how = "emulated"
	}
	return fmt.Sprintf("%#x %s", candidates[0].Sites, how)
}
