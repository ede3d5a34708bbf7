package facts

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

const infiniband = "class/infiniband"

// Devices is a snapshot of RDMA devices and their counters.
type Devices struct {
	trees   []*tree
	devices []*device
	notes   []string
}

// device and where it is described.
type device struct {
	event.Device
	tree *tree
	dir  string                    // class/infiniband/NAME
	real string                    // the directory of the function it is on, without links
	stop map[int]map[string]uint64 // by port: the counters when the window ended; nil: it has not
}

// SnapshotDevices reads the devices called names (all, if names is nil) under
// the sysfs roots; where a name is under several, the first has it. The caller
// closes it.
func SnapshotDevices(roots []string, names []string) *Devices {
	d := &Devices{}
	found := map[string]bool{}
	for _, dir := range roots {
		t, err := openTree(dir)
		if err != nil {
			continue // a machine without the emulated device, or without /sys
		}
		d.trees = append(d.trees, t)
		for _, name := range t.list(infiniband) {
			if !found[name] && (names == nil || slices.Contains(names, name)) {
				found[name] = true
				d.devices = append(d.devices, readDevice(t, name))
			}
		}
	}
	for _, name := range names {
		if !found[name] {
			d.notes = append(d.notes, fmt.Sprintf("nothing is known about device %s: no %s/%s in %s",
				clean(name), infiniband, clean(name), strings.Join(roots, ", ")))
		}
	}
	slices.SortFunc(d.devices, func(a, b *device) int { return strings.Compare(a.Name, b.Name) })
	return d
}

// Close closes the roots.
func (d *Devices) Close() error {
	for _, t := range d.trees {
		t.root.Close() // only read from
	}
	d.trees = nil
	return nil
}

// Begin reads the counters anew: what they counted before is forgotten.
func (d *Devices) Begin() {
	for _, dev := range d.devices {
		for i := range dev.Ports {
			values := dev.counters(dev.Ports[i].Number)
			for j := range dev.Ports[i].Counters {
				c := &dev.Ports[i].Counters[j]
				if v, ok := values[c.Name]; ok {
					c.Start, c.Stop = v, v
				}
			}
		}
	}
}

// End reads the counters for Finish.
func (d *Devices) End() {
	for _, dev := range d.devices {
		dev.stop = make(map[int]map[string]uint64)
		for _, port := range dev.Ports {
			dev.stop[port.Number] = dev.counters(port.Number)
		}
	}
}

// Finish returns the devices with both values of their counters: those at the end
// are of End, or of now. A counter that can be read no more is left out, with a
// note. It may be called more than once.
func (d *Devices) Finish() []event.Device {
	var out []event.Device
	for _, dev := range d.devices {
		c := dev.Device
		c.Ports = slices.Clone(dev.Ports)
		for i := range c.Ports {
			stop, ended := dev.stop[c.Ports[i].Number]
			if !ended {
				stop = dev.counters(c.Ports[i].Number)
			}
			c.Ports[i].Counters = d.pair(dev, c.Ports[i], stop)
		}
		out = append(out, c)
	}
	return out
}

// pair joins the counters of a port at the start with those at the stop.
func (d *Devices) pair(dev *device, port event.Port, stop map[string]uint64) []event.PortCounter {
	var joined []event.PortCounter
	for _, c := range port.Counters {
		v, ok := stop[c.Name]
		if !ok {
			d.note(fmt.Sprintf("counters of %s port %d could not be read again at the end", dev.Name, port.Number))
			continue
		}
		c.Stop = v
		joined = append(joined, c)
	}
	return joined
}

func (d *Devices) note(text string) {
	if !slices.Contains(d.notes, text) {
		d.notes = append(d.notes, text)
	}
}

// Notes are sentences on what could not be read.
func (d *Devices) Notes() []string { return slices.Clone(d.notes) }

// address of a PCI function as sysfs writes it.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func readDevice(t *tree, name string) *device {
	d := &device{tree: t, dir: path.Join(infiniband, name)}
	d.Name = clean(name)
	d.real = t.follow(path.Join(t.follow(d.dir), "device"))
	if card := t.text(d.dir, "parent"); !t.has(d.dir, "device") && card != "" && !strings.Contains(card, "/") {
		// soft-RoCE is below no device, and names its network card (since 5.12).
		d.real = t.follow(path.Join(t.follow(path.Join("class/net", card)), "device"))
	}
	d.Firmware = t.text(d.dir, "fw_ver")
	if t.has(d.dir, "device/driver") {
		d.Driver = clean(path.Base(t.follow(path.Join(d.real, "driver"))))
	}
	d.NUMANode = -1
	for _, dir := range d.ancestors() {
		if pciAddress.MatchString(path.Base(dir)) && d.PCI == "" {
			d.PCI = path.Base(dir)
			d.PCIeBPS = t.linkRate(dir)
		}
		if n, err := strconv.Atoi(t.text(dir, "numa_node")); err == nil && n >= 0 && d.NUMANode < 0 {
			d.NUMANode = n
		}
	}
	if driver := d.software(); driver != "" {
		d.Software, d.Driver = true, driver
	}
	for _, n := range t.list(d.dir, "ports") {
		if number, err := strconv.Atoi(n); err == nil {
			d.Ports = append(d.Ports, d.port(number))
		}
	}
	slices.SortFunc(d.Ports, func(a, b event.Port) int { return a.Number - b.Number })
	return d
}

// ancestors are the directories from the device's function upwards: a virtio
// or auxiliary device is below the PCI function it is part of.
func (d *device) ancestors() []string {
	var dirs []string
	for dir := d.real; dir != "." && dir != "/" && strings.HasPrefix(dir, "devices"); dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}

// software names the driver of a device that is no hardware; empty: it is.
func (d *device) software() string {
	switch {
	case strings.HasPrefix(d.tree.text(d.dir, "board_id"), "SOFT"):
		return "softmlx5" // testbed/softmlx5
	case d.tree.has(d.dir, "parent"): // drivers/infiniband/sw/rxe/rxe_verbs.c, parent_show
		return "rdma_rxe"
	case strings.HasPrefix(d.Name, "rxe"):
		return "rdma_rxe"
	case strings.HasPrefix(d.Name, "siw"): // siw has no attribute of its own
		return "siw"
	}
	return ""
}

// linkRate is what the PCIe link of a function carries, bits per second after
// line coding; 0 if it is unknown. A virtual function has no link of its own.
func (t *tree) linkRate(dir string) uint64 {
	for _, d := range []string{dir, path.Join(dir, "physfn")} {
		if rate := pcieRate(t.text(d, "current_link_speed"), t.text(d, "current_link_width")); rate != 0 {
			return rate
		}
	}
	return 0
}

// pcieRate computes the rate of a link from sysfs: "16.0 GT/s PCIe" and "16".
// Generations 1 and 2 send 10 bits for 8, 3 to 5 send 130 for 128, and from
// 6 on flits carry 236 bytes of 256 (PCI Express Base Specification).
func pcieRate(speed, width string) uint64 {
	number, unit, _ := strings.Cut(speed, " ")
	gt, err := strconv.ParseFloat(number, 64)
	lanes, err2 := strconv.ParseUint(width, 10, 8)
	if err != nil || err2 != nil || !strings.HasPrefix(unit, "GT/s") || !(gt > 0 && gt <= 1024) || lanes > 32 {
		return 0
	}
	efficiency := 236.0 / 256
	switch {
	case gt <= 5:
		efficiency = 0.8
	case gt <= 32:
		efficiency = 128.0 / 130
	}
	return uint64(gt * 1e9 * efficiency * float64(lanes))
}

// port reads a port and its counters.
func (d *device) port(number int) event.Port {
	dir := path.Join(d.dir, "ports", strconv.Itoa(number))
	p := event.Port{
		Number:    number,
		LinkLayer: d.tree.text(dir, "link_layer"),
		State:     afterColon(d.tree.text(dir, "state")),
		RateBPS:   portRate(d.tree.text(dir, "rate")),
	}
	if lid, err := strconv.ParseUint(d.tree.text(dir, "lid"), 0, 16); err == nil {
		p.LID = uint16(lid)
	}
	values := d.counters(number)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		p.Counters = append(p.Counters, event.PortCounter{Name: name, Start: values[name], Stop: values[name]})
	}
	return p
}

// afterColon is "ACTIVE" of "4: ACTIVE".
func afterColon(s string) string {
	if _, name, ok := strings.Cut(s, ": "); ok {
		return name
	}
	return s
}

// portRate parses "100 Gb/sec (4X EDR)", bits per second; 0 if it is unknown.
func portRate(s string) uint64 {
	number, unit, _ := strings.Cut(s, " ")
	gb, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(gb > 0 && gb <= 1e6) {
		return 0
	}
	return uint64(gb * 1e9)
}

// counters reads the counters of a port. Kernels since 5.15 may have those of a
// device's only port in the device's directory (ib_setup_device_attrs).
func (d *device) counters(port int) map[string]uint64 {
	values := map[string]uint64{}
	ports := path.Join(d.dir, "ports", strconv.Itoa(port))
	for _, src := range []struct{ dir, prefix string }{
		{path.Join(d.dir, "hw_counters"), "hw_counters/"},
		{path.Join(ports, "hw_counters"), "hw_counters/"},
		{path.Join(ports, "counters"), ""},
	} {
		for _, name := range d.tree.list(src.dir) {
			if name == "lifespan" { // how long the kernel caches the others, ms
				continue
			}
			// Some say "N/A" or fail where the port has no such counter.
			if v, err := strconv.ParseUint(d.tree.text(src.dir, name), 10, 64); err == nil {
				values[src.prefix+clean(name)] = v
			}
		}
	}
	return values
}
