package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// InModule says whether a kernel module is loaded, and fails where it is but
// lacks the function that a program attaches to, or its type information.
func InModule(module string, p *ebpf.ProgramSpec) (bool, error) {
	if _, err := os.Stat("/sys/module/" + module); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for kernel module %s: %w", module, err)
	}
	types, err := btf.LoadKernelModuleSpec(module)
	if err != nil {
		return false, fmt.Errorf("read the type information of kernel module %s: %w", module, err)
	}
	var fn *btf.Func
	if err := types.TypeByName(p.AttachTo, &fn); err != nil {
		return false, fmt.Errorf("find %s in kernel module %s: %w", p.AttachTo, module, err)
	}
	return true, nil
}
