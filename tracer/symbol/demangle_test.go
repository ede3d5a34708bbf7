package symbol

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"main":                                 "main",
		"":                                     "",
		"pthread_create@@GLIBC_2.34":           "pthread_create",
		"@odd":                                 "@odd",
		"work.constprop.0.isra.0":              "work",
		"work.part.3.cold":                     "work",
		"work.llvm.123456789":                  "work",
		"a.b":                                  "a.b",
		"_Z3foov":                              "foo",
		"_ZN4nccl5proxy8progressEPNS_5StateEi": "nccl::proxy::progress",
		"_ZNSt6vectorIiSaIiEE9push_backERKi.cold": "std::vector<int, std::allocator<int> >::push_back",
		"_ZN12_GLOBAL__N_14pollEv":                "(anonymous namespace)::poll",
		"_ZN4core3fmt5write17h0123456789abcdefE":  "core::fmt::write",
		"_RNvNtCs1234_7mycrate3foo3bar":           "mycrate::foo::bar",
		"_Znot really mangled":                    "_Znot really mangled",
		"caf\xe9":                                 "caf\uFFFD",
	} {
		if got := readable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Names may be made to explode: substitutions that double.
func TestReadableIsBounded(t *testing.T) {
	name := "_Z1fI" + strings.Repeat("1AI", 200) + "i" + strings.Repeat("E", 200) + "Ev"
	for _, in := range []string{
		name,
		"_Z1fSt4pairIS_IS_IS_IiiES0_ES1_ES2_E" + strings.Repeat("S_IS3_S3_E", 30),
		strings.Repeat("x", 1<<20),
	} {
		if got := readable(in); len(got) > maxFunc+3 || !utf8.ValidString(got) {
			t.Errorf("%.40q: %d bytes", in, len(got))
		}
	}
}

func FuzzReadable(f *testing.F) {
	f.Add("_ZN4nccl5proxy8progressEPNS_5StateEi")
	f.Add("_RNvNtCs1234_7mycrate3foo3bar")
	f.Fuzz(func(t *testing.T, name string) {
		if got := readable(name); len(got) > maxFunc+3 || !utf8.ValidString(got) {
			t.Fatalf("%q", got)
		}
	})
}
