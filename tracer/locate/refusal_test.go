package locate

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRefusal(t *testing.T) {
	const filter = "it has a seccomp filter, as in a container: run it outside, or with a profile that lets bpf and perf_event_open pass"
	for _, test := range []struct{ name, seccomp, label, modules, want string }{
		{name: "nothing", seccomp: "0"},
		{"not confined", "0", "unconfined\n", "capability,apparmor\n", ""},
		{"SELinux, not confined", "0", "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\x00", "selinux", ""},
		{"strict mode would have killed it", "1", "", "", ""},
		{"filter", "2", "", "", filter},
		{"AppArmor", "0", "docker-default (enforce)\n", "capability,apparmor\n",
			`a security module confines it as "docker-default (enforce)" (modules capability,apparmor): see its audit log`},
		{"both", "2", "system_u:system_r:container_t:s0:c1,c2\x00", "",
			filter + `; a security module confines it as "system_u:system_r:container_t:s0:c1,c2": see its audit log`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			host := Host{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys")}
			put := func(path, text string) {
				if text == "" {
					return
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			put(host.Proc+"/self/status", "Name:\trdmatrace\nSeccomp:\t"+test.seccomp+"\n")
			put(host.Proc+"/self/attr/current", test.label)
			put(host.Sys+"/kernel/security/lsm", test.modules)
			if got := Refusal(host); got != test.want {
				t.Errorf("%q, not %q", got, test.want)
			}
		})
	}
}
