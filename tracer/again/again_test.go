package again

import (
	"errors"
	"strings"
	"testing"
)

const helper = "again-test"

func init() {
	As(helper, func(args []string) error { return errors.New("asked to " + strings.Join(args, " ")) })
}

func TestHelper(t *testing.T) {
	out, err := Command(t.Context(), helper, "fail", "well").CombinedOutput()
	if err == nil || string(out) != helper+": asked to fail well\n" {
		t.Errorf("%v, %q", err, out)
	}
}
