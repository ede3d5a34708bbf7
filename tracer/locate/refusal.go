package locate

import (
	"fmt"
	"os"
	"strings"
)

// Refusal says what may refuse to this process what its capabilities allow, such as
// bpf(2) and perf_event_open(2): a seccomp filter, a security module. Empty: nothing
// that shows.
func Refusal(host Host) string {
	newFacts(0, &host)
	var layers []string
	if b, err := os.ReadFile(host.Proc + "/self/status"); err == nil && status(b, "Seccomp") == "2" {
		layers = append(layers, "it has a seccomp filter, as in a container: run it outside, or with a profile that lets bpf and perf_event_open pass")
	}
	if label := securityLabel(host); label != "" {
		layers = append(layers, fmt.Sprintf("a security module confines it as %q%s: see its audit log", label, securityModules(host)))
	}
	return strings.Join(layers, "; ")
}

// securityLabel is what AppArmor or SELinux hold this process to be; empty: nothing
// that they confine.
func securityLabel(host Host) string {
	b, err := os.ReadFile(host.Proc + "/self/attr/current")
	if err != nil {
		return "" // no module has labels
	}
	label := strings.TrimRight(string(b), "\x00\n")
	if label == "unconfined" || label == "kernel" || strings.Contains(label, ":unconfined_t:") {
		return ""
	}
	return label
}

// securityModules of the kernel, where they can be read.
func securityModules(host Host) string {
	b, err := os.ReadFile(host.Sys + "/kernel/security/lsm")
	if err != nil {
		return "" // securityfs is not mounted
	}
	return fmt.Sprintf(" (modules %s)", strings.TrimSpace(string(b)))
}
