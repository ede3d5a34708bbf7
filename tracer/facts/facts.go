// Package facts reads what surrounds the events: the host, the targets and
// their threads, the RDMA devices with their counters, and which interrupt
// line belongs to which device.
//
// Nothing here is required: what cannot be read is left at its zero value
// ("unknown" in event.Context), and strings that anybody may set - names of
// threads, command lines, cgroups - are bounded and made valid UTF-8.
package facts

import "strings"

// maxText bounds one string.
const maxText = 4096

// clean makes a line of text from the kernel or a target fit to be shown.
func clean(s string) string {
	s = strings.Trim(s, " \t\r\n\x00")
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
