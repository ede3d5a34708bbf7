// Package facts reads what surrounds the events: the host, the targets and
// their threads, the RDMA devices with their counters, and which interrupt
// line belongs to which device.
//
// Nothing here is required: what cannot be read is left at its zero value
// ("unknown" in event.Context), and strings that anybody may set - names of
// threads, command lines, cgroups - are made valid UTF-8.
package facts

import "github.com/rdmatrace/rdmatrace/event"

// Host describes this machine.
func Host() event.Host { return event.Host{} }

// Target describes a process; ok is false if there is none with that PID.
func Target(pid uint32) (t event.Target, ok bool) { return event.Target{PID: pid, Rank: -1}, true }

// Threads lists the threads that a process has now.
func Threads(pid uint32) []event.Thread { return nil }

// SysfsRoots are the directories in which a process's RDMA devices are
// described, in the order to look: emulated ones first, /sys last.
func SysfsRoots(pid uint32) []string { return []string{"/sys"} }

// Devices is a snapshot of RDMA devices and their counters.
type Devices struct{}

// SnapshotDevices reads the devices called names (all, if names is nil) under
// the sysfs roots; where a name is under several, the first has it.
func SnapshotDevices(roots []string, names []string) *Devices { return &Devices{} }

// Finish reads the counters again and returns the devices with both values.
// It may be called more than once; the latest reading counts.
func (d *Devices) Finish() []event.Device { return nil }

// Notes are sentences on what could not be read.
func (d *Devices) Notes() []string { return nil }

// IRQs lists the interrupt lines of the devices, and those in seen, with the
// names of /proc/interrupts.
func (d *Devices) IRQs(seen []uint32) []event.IRQ { return nil }
