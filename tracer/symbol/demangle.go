package symbol

import (
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxFunc bounds a demangled name in bytes, about 2^demangleShift.
const (
	demangleShift = 12
	maxFunc       = 1 << demangleShift
)

// clone is what compilers append to the names of copies of a function.
var clone = regexp.MustCompile(`(\.(constprop|isra|part|cold|llvm|lto_priv)(\.\d+)*)+$`)

// readable demangles C++ and Rust names, without parameters - a profile tells
// functions apart by where they are called -, drops what marks a compiler's copy
// of a function, and makes any name valid UTF-8.
func readable(name string) string {
	// .symtab has "pthread_create@@GLIBC_2.34" where .dynsym keeps the version apart.
	if i := strings.IndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	name = clone.ReplaceAllString(name, "")
	name = demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(demangleShift))
	if len(name) > maxFunc {
		name = name[:maxFunc]
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
