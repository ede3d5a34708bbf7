package facts

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
)

func uintptrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// The testbed's device is found through the environment of a program that runs
// on it, and known for what it is; the counters are read again after that
// program has ended.
func TestEmulatedDevice(t *testing.T) {
	dev := unwindtest.StartDevice(t)
	p := unwindtest.Start(t, dev.Command("run", "sh", "-c", "echo ready; kill -STOP $$"))
	roots := SysfsRoots(p.PID)
	if len(roots) != 2 || roots[1] != "/sys" {
		t.Fatalf("roots are %q", roots)
	}
	d := SnapshotDevices(roots, []string{"mlx5_0"})
	defer d.Close()
	p.Kill()
	got := d.Finish()
	if len(got) != 1 || len(d.Notes()) != 0 {
		t.Fatalf("%+v, %q", got, d.Notes())
	}
	m := got[0]
	if m.Name != "mlx5_0" || !m.Software || m.Driver != "softmlx5" || m.Firmware == "" || m.NUMANode != -1 ||
		m.PCI != "0000:03:00.0" || m.PCIeBPS < 100e9 || len(m.Ports) != 1 {
		t.Fatalf("%+v", m)
	}
	port := m.Ports[0]
	if port.Number != 1 || port.LinkLayer != "InfiniBand" || port.State != "ACTIVE" || port.RateBPS != 100e9 || port.LID == 0 {
		t.Errorf("%+v", port)
	}
	if !slices.ContainsFunc(port.Counters, func(c event.PortCounter) bool { return c.Name == "port_xmit_data" }) {
		t.Errorf("counters: %+v", port.Counters)
	}
	if irqs := d.IRQs(nil); len(irqs) != 0 {
		t.Errorf("an emulated device has interrupt lines: %+v", irqs)
	}
}
