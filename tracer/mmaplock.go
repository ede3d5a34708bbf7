package tracer

import "github.com/cilium/ebpf/btf"

// mmapLockNote is for kernels on which each hit of a uprobe takes the lock of the
// process's mappings for reading, and so waits for whoever changes them.
const mmapLockNote = "on this kernel (before 6.14) each hit of a probe takes the lock of its process's memory mappings: while another thread " +
	"of the job maps, unmaps or registers memory, a post or poll may be held up by that, which without rdmatrace it is not"

// locksMappings: the kernel finds the uprobe of a hit under mmap_lock. Since 6.14 it
// looks without it first (find_active_uprobe_speculative of kernel/events/uprobes.c,
// which is inlined, so its types do not name it). That needs mm_lock_seq of struct
// mm_struct to be a sequence count, which it is with CONFIG_PER_VMA_LOCK. That alone was
// backported (Debian's 6.12.117 has it); ri_pool of struct uprobe_task came with the
// same changes to uprobes, and was not.
func locksMappings(types *btf.Spec) bool {
	var mm, task *btf.Struct
	if types.TypeByName("mm_struct", &mm) != nil || types.TypeByName("uprobe_task", &task) != nil {
		return false
	}
	seq := memberType(mm, "mm_lock_seq")
	if seq == nil || memberType(task, "ri_pool") == nil {
		return true
	}
	_, counts := btf.UnderlyingType(seq).(*btf.Struct)
	return !counts
}

// memberType finds a member, in anonymous structs and unions too; nil: there is none.
func memberType(of btf.Type, name string) btf.Type {
	var members []btf.Member
	switch t := btf.UnderlyingType(of).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return m.Type
		}
		if m.Name == "" {
			if found := memberType(m.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}
