package attribution

import "github.com/google/go-cmp/cmp"

func compareGroups(got, want Group) string { return cmp.Diff(want, got) }
