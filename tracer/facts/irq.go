package facts

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// maxInterrupts bounds /proc/interrupts: a line for each interrupt with a
// column for each CPU.
const maxInterrupts = 16 << 20

// IRQs lists the interrupt lines of the devices, and those in seen, with the
// names of /proc/interrupts.
func (d *Devices) IRQs(seen []uint32) []event.IRQ {
	return d.irqs("/proc", seen)
}

func (d *Devices) irqs(proc string, seen []uint32) []event.IRQ {
	names := parseInterrupts(readBounded(filepath.Join(proc, "interrupts"), maxInterrupts))
	lines := map[uint32]string{} // device by line
	for _, dev := range d.devices {
		for _, line := range dev.lines(names) {
			// Functions of one card may share lines: the first name stands.
			if _, taken := lines[line]; !taken {
				lines[line] = dev.Name
			}
		}
	}
	for _, line := range seen {
		if _, known := lines[line]; !known {
			lines[line] = ""
		}
	}
	var out []event.IRQ
	for line, dev := range lines {
		out = append(out, event.IRQ{Line: line, Name: names[line], Device: dev, CPUs: affinity(proc, line)})
	}
	slices.SortFunc(out, func(a, b event.IRQ) int { return cmp.Compare(a.Line, b.Line) })
	return out
}

// affinity is where a line is handled: in effect, since the interrupt controller
// may take one CPU of those that are allowed, else (before 4.13, or where the
// controller doesn't say) where it is allowed.
func affinity(proc string, line uint32) string {
	for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
		name := filepath.Join(proc, "irq", strconv.FormatUint(uint64(line), 10), file)
		if list := strings.TrimSpace(readBounded(name, maxAffinity)); list != "" {
			return clean(list)
		}
	}
	return ""
}

// maxAffinity bounds a list of CPUs.
const maxAffinity = 64 << 10

// lines are the interrupt lines of a device: what msi_irqs of its PCI function
// lists, or, for sysfs trees without, the lines whose name has its address, as
// mlx5 gives them ("mlx5_comp0@pci:0000:03:00.0").
func (d *device) lines(names map[uint32]string) []uint32 {
	for _, dir := range d.ancestors() {
		var lines []uint32
		for _, n := range d.tree.list(path.Join(dir, "msi_irqs")) {
			if line, err := strconv.ParseUint(n, 10, 32); err == nil {
				lines = append(lines, uint32(line))
			}
		}
		if len(lines) > 0 {
			return lines
		}
	}
	var lines []uint32
	if d.PCI != "" && !d.Software {
		for line, name := range names {
			if strings.HasSuffix(name, "@pci:"+d.PCI) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// parseInterrupts reads the names from /proc/interrupts, by line. A line is
//
//	24:  10  0  PCI-MSIX-0000:00:02.0  0-edge      virtio0-config
//	24:  10  0  GICv3                  27 Level     arch_timer, other
//	24:  10  0  Hyper-V PCIe MSI  4138200989697-edge  mana_q0@pci:7870:00:00.0
//
// with a count for each CPU of the heading (show_interrupts of kernel/irq/proc.c).
func parseInterrupts(text string) map[uint32]string {
	names := map[uint32]string{}
	heading, rest, _ := strings.Cut(text, "\n")
	cpus := len(strings.Fields(heading))
	for line := range strings.Lines(rest) {
		number, after, ok := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			continue // NMI, LOC and their like are no lines
		}
		fields := strings.Fields(after)
		names[uint32(n)] = clean(strings.Join(actions(fields[min(cpus, len(fields)):]), " "))
	}
	return names
}

// actions are the fields after a line's chip, which has one word or several, its
// number there, and how it is triggered: fused with the number ("0-edge", Xen's
// without one: "-msi-x"), or a word that follows it.
func actions(fields []string) []string {
	for i := 1; i < len(fields); i++ {
		if f := fields[i]; f == "Edge" || f == "Level" || triggered.MatchString(f) {
			return fields[i+1:]
		}
	}
	return fields[min(2, len(fields)):]
}

var triggered = regexp.MustCompile(`^[0-9]*-[a-z][a-z-]*$`)
