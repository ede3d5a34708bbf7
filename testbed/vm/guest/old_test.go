package guest

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTooOld: a kernel before Linux 5.15 is refused, and told why; the others are not.
func TestTooOld(t *testing.T) {
	inGuest(t)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	out, err := exec.Command(binary(t, "rdmatrace"), "--", "true").CombinedOutput()
	_, reason, refused := strings.Cut(string(out), "rdmatrace: this kernel is too old to be traced: ")
	if old := strings.HasPrefix(release, "5.10."); refused != old || refused != (err != nil) {
		t.Fatalf("Linux %s, refused: %t, %v\n%s", release, refused, err, out)
	}
	if refused {
		reason, _, _ = strings.Cut(reason, ";")
		feature("traced", "no: %s", reason)
		return
	}
	feature("traced", "yes")
}
