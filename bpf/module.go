package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Modules have the programs at functions of kernel modules: of drivers of software
// NICs, and of what tells completion events to programs.
var Modules = map[string]string{
	RdmaProgRxeCqeEnter:  "rdma_rxe",
	RdmaProgRxeCqeExit:   "rdma_rxe",
	RdmaProgCqEventEntry: "ib_uverbs",
	RdmaProgCqEventExit:  "ib_uverbs",
}

// InModule says whether a kernel module is loaded, or a part of the kernel, and fails
// where it is loaded but lacks the function that a program attaches to, or its type
// information.
func InModule(module string, p *ebpf.ProgramSpec) (bool, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false, fmt.Errorf("read the kernel's type information: %w", err)
	}
	var fn *btf.Func
	if kernel.TypeByName(p.AttachTo, &fn) == nil {
		return true, nil
	}
	if _, err := os.Stat("/sys/module/" + module); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for kernel module %s: %w", module, err)
	}
	types, err := btf.LoadKernelModuleSpec(module)
	if err != nil {
		return false, fmt.Errorf("read the type information of kernel module %s: %w", module, err)
	}
	if err := types.TypeByName(p.AttachTo, &fn); err != nil {
		return false, fmt.Errorf("find %s in kernel module %s: %w", p.AttachTo, module, err)
	}
	return true, nil
}
