package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxFunc bounds a demangled name in bytes, about 2^demangleShift.
const (
	demangleShift = 12
	maxFunc       = 1 << demangleShift
)

// readable demangles C++ and Rust names, without parameters - a profile tells
// functions apart by where they are called - and makes any name valid UTF-8.
func readable(name string) string {
	// .symtab has "pthread_create@@GLIBC_2.34" where .dynsym keeps the version apart.
	if i := strings.IndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	name = demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(demangleShift))
	if len(name) > maxFunc {
		name = name[:maxFunc]
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
