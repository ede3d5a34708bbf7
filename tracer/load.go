package tracer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// kernel is what was loaded: programs and maps, and the facts of this kernel
// that the rest of the plan depends on.
type kernel struct {
	coll *ebpf.Collection
	// missing says why programs of the kernel's tracepoints and functions cannot be.
	missing map[string]string
	multi   bool   // uprobe_multi links with a PID work
	single  string // why not, if they don't
	cpus    int    // possible CPUs
	layouts layouts
	sites   siteNumbers
	polls   pollTable
	builds  buildTable
	// paused: the probes of posts and polls are out, those too that are found meanwhile.
	// The follower's goroutine alone pauses and, once it runs, attaches.
	paused bool
	// forks: child processes are traced too.
	forks bool
	// opened: the gate is open.
	opened atomic.Bool
	// round counts the times between pauses.
	round uint32
	// written: the writing of completion entries by the kernel is observed.
	written bool
	// locks: see locksMappings.
	locks bool
	// keepEmpty: polls are observed at entry and return, also empty ones.
	keepEmpty bool
}

// loadKernel loads all programs that this kernel can run.
func loadKernel(cfg *Config) (*kernel, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		// Needed before 5.11 only; loading says so itself if it matters.
		cfg.Log.Debug("the memlock limit stays", "err", err)
	}
	types, err := kernelTypes()
	if err != nil {
		return nil, err
	}
	if tooOld() {
		return nil, errTooOld
	}
	if ringsSleep(types) {
		return nil, errRingsSleep
	}
	spec, err := bpf.LoadRdma()
	if err != nil {
		return nil, fmt.Errorf("read the built-in BPF object: %w", err)
	}
	k := &kernel{missing: map[string]string{}, keepEmpty: cfg.EmptyPolls, round: 1, locks: locksMappings(types), forks: cfg.FollowForks}
	k.polls.learned = map[pathKey]pollPath{}
	if k.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count the CPUs: %w", err)
	}
	k.dropMissing(spec, types)
	if err := configure(spec, types, k.cpus, cfg); err != nil {
		return nil, err
	}
	k.single = "not wanted"
	if !cfg.singleUprobes {
		k.multi, k.single = uprobeMultiWorks()
	}
	if k.multi {
		for _, p := range spec.Programs {
			if p.Type == ebpf.Kprobe {
				p.AttachType = ebpf.AttachTraceUprobeMulti
			}
		}
	}
	if err := k.load(spec, cfg); err != nil {
		return nil, err
	}
	return k, nil
}

// kernelTypes are those that the kernel brings along. A file with them would not do
// instead: tracepoints, the iterators and storage of tasks are verified against the
// kernel's own.
func kernelTypes() (*btf.Spec, error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's type information (/sys/kernel/btf/vmlinux; it needs CONFIG_DEBUG_INFO_BTF; rdmatrace report FILE works here without): %w", err)
	}
	return types, nil
}

// dropMissing takes the programs out whose tracepoint or function this kernel
// lacks, by looking for it rather than by the kernel's version. Those of a
// module that isn't loaded are not missed.
func (k *kernel) dropMissing(spec *ebpf.CollectionSpec, types *btf.Spec) {
	for name, p := range spec.Programs {
		tp, ok := strings.CutPrefix(p.SectionName, "tp_btf/")
		if ok && tracepointArgs(types, tp) == 0 {
			k.missing[name] = "this kernel has no tracepoint " + tp
			delete(spec.Programs, name)
		}
		module, ok := bpf.Modules[name]
		if !ok {
			continue
		}
		loaded, err := bpf.InModule(module, p)
		if err != nil || !loaded {
			delete(spec.Programs, name)
		}
		if err != nil {
			k.missing[name] = err.Error()
		}
	}
}

// rxeWrites is the function of soft-RoCE that writes completion entries.
const rxeWrites = "rxe_cq_post"

// tracepointArgs counts the arguments of a tracepoint's prototype; 0: the
// kernel has no such tracepoint. The first is the tracepoint's private data.
func tracepointArgs(types *btf.Spec, tp string) int {
	var def *btf.Typedef
	if err := types.TypeByName("btf_trace_"+tp, &def); err != nil {
		return 0
	}
	ptr, ok := def.Type.(*btf.Pointer)
	if !ok {
		return 0
	}
	proto, ok := ptr.Target.(*btf.FuncProto)
	if !ok {
		return 0
	}
	return len(proto.Params)
}

func configure(spec *ebpf.CollectionSpec, types *btf.Spec, cpus int, cfg *Config) error {
	ring := ringSize(cfg.RingBytes, cpus)
	for name, value := range map[string]any{
		bpf.RdmaVarSwitchHasState: tracepointArgs(types, "sched_switch") >= 5,
		bpf.RdmaVarWakeBytes:      uint32(ring / 4),
		bpf.RdmaVarStacksInWindow: stacksInWindow(cpus),
		bpf.RdmaVarFollowForks:    cfg.FollowForks,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	spec.Maps[bpf.RdmaMapRings].MaxEntries = uint32(cpus)
	spec.Maps[bpf.RdmaMapCpus].MaxEntries = uint32(cpus)
	return nil
}

// explainLoad makes one line of a verifier's refusal, all of it for --debug.
func explainLoad(err error, cfg *Config) error {
	var ve *ebpf.VerifierError
	switch {
	case errors.As(err, &ve) && cfg.Debug:
		return fmt.Errorf("load BPF programs: %w\n%+v", err, ve)
	}
	return fmt.Errorf("load BPF programs: %w", explainRefusal(err, cfg.Host))
}

// explainRefusal says which layer may refuse what the capabilities of this process
// allow: that it has them was made sure of before (locate.Preflight).
func explainRefusal(err error, host locate.Host) error {
	var ve *ebpf.VerifierError
	if !errors.Is(err, os.ErrPermission) || errors.As(err, &ve) && len(ve.Log) > 0 {
		return err // the verifier says what it does not like, with EACCES too
	}
	why := locate.Refusal(host)
	if why == "" {
		why = "no seccomp filter and no security module shows that could be why"
	}
	return fmt.Errorf("%w, although this process has the capabilities for it: %s", err, why)
}

func (k *kernel) prog(name string) *ebpf.Program { return k.coll.Programs[name] }

// setOpen opens or closes the gate.
func (k *kernel) setOpen(open bool) error {
	var v uint8
	if open {
		v = 1
	}
	if err := k.coll.Variables[bpf.RdmaVarOpen].Set(v); err != nil {
		return fmt.Errorf("set the gate: %w", err)
	}
	k.opened.Store(open)
	return nil
}

// addTarget makes pid a target, before the gate opens.
func (k *kernel) addTarget(pid uint32, hold bool) error {
	var t bpf.RdmaTarget
	if hold {
		t.Flags = targetHold
	}
	if err := k.coll.Maps[bpf.RdmaMapTargets].Put(pid, t); err != nil {
		return fmt.Errorf("add target %d: %w", pid, err)
	}
	return k.markTargets()
}

// markTargets sets the bits of all targets. The programs set those of children that
// are forked meanwhile, after they have put them among the targets: what is written
// over here is found missing by another look.
func (k *kernel) markTargets() error {
	bits := k.coll.Variables[bpf.RdmaVarTargetBits]
	for {
		var words [targetBits / 64]uint64
		if err := bits.Get(&words); err != nil {
			return fmt.Errorf("read which processes are targets: %w", err)
		}
		was := words
		var pid uint32
		var t bpf.RdmaTarget
		each := k.coll.Maps[bpf.RdmaMapTargets].Iterate()
		for each.Next(&pid, &t) {
			bit := pid % targetBits
			words[bit/64] |= 1 << (bit % 64)
		}
		if err := each.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
			return fmt.Errorf("read the targets: %w", err)
		} else if err == nil && words == was {
			return nil
		}
		if err := bits.Set(words); err != nil {
			return fmt.Errorf("mark the targets: %w", err)
		}
	}
}

// removeTarget undoes addTarget for a process that has ended, except for the bit,
// which others may share; and forgets the queues that it left to the kernel to destroy.
func (k *kernel) removeTarget(pid uint32) error {
	err := k.coll.Maps[bpf.RdmaMapTargets].Delete(pid)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove target %d: %w", pid, err)
	}
	queues := k.coll.Maps[bpf.RdmaMapCqs]
	var left []bpf.RdmaObjectKey
	var key bpf.RdmaObjectKey
	var state bpf.RdmaCqState
	each := queues.Iterate()
	for each.Next(&key, &state) {
		if key.Pid == pid {
			left = append(left, key)
		}
	}
	err = each.Err()
	if errors.Is(err, ebpf.ErrIterationAborted) {
		err = nil // others' queues come and go; what is missed takes a place, no more
	}
	for _, key := range left {
		if e := queues.Delete(key); !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("forget the queues of target %d: %w", pid, err)
	}
	return nil
}

// As in bpf/config.bpf.h.
const (
	targetBits = 4096
	targetHold = 1
)
