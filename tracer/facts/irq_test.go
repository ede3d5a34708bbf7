package facts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatrace/rdmatrace/event"
)

// Made up after what x86 and arm64 kernels print.
const interruptsX86 = `           CPU0       CPU1
   0:         40          0   IO-APIC   2-edge      timer
  24:          1          0  PCI-MSIX-0000:00:02.0   0-edge      pcieport
  40:       1000         22  PCI-MSIX-0000:03:00.0   0-edge      mlx5_async0@pci:0000:03:00.0
  41:       5000     123456  PCI-MSIX-0000:03:00.0   1-edge      mlx5_comp0@pci:0000:03:00.0, other name
  42:          0          0  PCI-MSI 1048576-edge
 NMI:          0          0   Non-maskable interrupts
 LOC:      98765      87654   Local timer interrupts
 ERR:          0
`

// As guests of Hyper-V print them, Azure's among them: the chip has several words.
const interruptsHyperV = `           CPU0       CPU1
   8:          0          0  IO-APIC   8-edge      rtc0
  24:          0         12  Hyper-V PCIe MSI 4138200989697-edge      mana_q0@pci:7870:00:00.0
  25:       7000          0  Hyper-V PCIe MSI 4138200989698-edge      mlx5_comp0@pci:c1d2:00:02.0
  26:          0          0  Hyper-V PCIe MSI 4138200989699-edge
`

// Of Xen some have no number of their own, and a chip may have no name.
const interruptsXen = `           CPU0       CPU1
  48:        123          4  xen-percpu    -virq      timer0
  70:         10          0  xen-pirq    -msi-x     mlx5_comp0@pci:0000:03:00.0
  71:         10          0  -     3-edge      something-edge
  72:         10          0  dummy   17 
  73:         10          0  dummy   18  named
`

const interruptsARM64 = `           CPU0       CPU1       CPU2       CPU3
 11:    1234567     223344     334455     445566     GICv3  27 Level     arch_timer
 40:          0          0          9          0   ITS-MSI 524288 Edge      mlx5_async0@pci:0000:03:00.0
IPI0:      1000       2000       3000       4000       Rescheduling interrupts
`

func TestParseInterrupts(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want map[uint32]string
	}{
		"x86": {interruptsX86, map[uint32]string{
			0: "timer", 24: "pcieport", 40: "mlx5_async0@pci:0000:03:00.0",
			41: "mlx5_comp0@pci:0000:03:00.0, other name", 42: "",
		}},
		"arm64": {interruptsARM64, map[uint32]string{11: "arch_timer", 40: "mlx5_async0@pci:0000:03:00.0"}},
		"hyper-v": {interruptsHyperV, map[uint32]string{
			8: "rtc0", 24: "mana_q0@pci:7870:00:00.0", 25: "mlx5_comp0@pci:c1d2:00:02.0", 26: "",
		}},
		"xen": {interruptsXen, map[uint32]string{
			48: "timer0", 70: "mlx5_comp0@pci:0000:03:00.0", 71: "something-edge", 72: "", 73: "named",
		}},
		"empty": {"", map[uint32]string{}},
		"junk":  {"CPU0\n99999999999: 1 x y z\n7\n: 1\n5:\n", map[uint32]string{5: ""}},
	} {
		if diff := cmp.Diff(tc.want, parseInterrupts(tc.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestIRQs(t *testing.T) {
	d := SnapshotDevices([]string{plant(t, mlx5Tree)}, nil)
	defer d.Close()
	want := []event.IRQ{
		{Line: 0, Name: "timer"},
		{Line: 40, Name: "mlx5_async0@pci:0000:03:00.0", Device: "mlx5_0", CPUs: "0-63,128-191"},
		{Line: 41, Name: "mlx5_comp0@pci:0000:03:00.0, other name", Device: "mlx5_0", CPUs: "7"},
		{Line: 777},
	}
	proc := plant(t, map[string]string{
		"interrupts":                     interruptsX86,
		"irq/41/effective_affinity_list": "7\n",
		"irq/41/smp_affinity_list":       "0-191\n",
		"irq/40/effective_affinity_list": "\n",
		"irq/40/smp_affinity_list":       "0-63,128-191\n",
	})
	if diff := cmp.Diff(want, d.irqs(proc, []uint32{0, 41, 777})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Without msi_irqs the names have the PCI address; a software device below a
// network card has the card's lines.
func TestIRQsOtherwise(t *testing.T) {
	byName := SnapshotDevices([]string{plant(t, map[string]string{
		"class/infiniband/mlx5_3":                                  "-> ../../devices/pci0000:00/0000:03:00.0/infiniband/mlx5_3",
		"devices/pci0000:00/0000:03:00.0/infiniband/mlx5_3/device": "-> ../../../0000:03:00.0",
	})}, nil)
	defer byName.Close()
	want := []event.IRQ{{Line: 40, Name: "mlx5_async0@pci:0000:03:00.0", Device: "mlx5_3"}}
	if diff := cmp.Diff(want, byName.irqs(plant(t, map[string]string{"interrupts": interruptsARM64}), nil)); diff != "" {
		t.Errorf("by name (-want +got):\n%s", diff)
	}
	rxe := SnapshotDevices([]string{plant(t, map[string]string{
		"class/infiniband/rxe0": "-> ../../devices/pci0000:00/0000:00:03.0/virtio1/infiniband/rxe0",
		"devices/pci0000:00/0000:00:03.0/virtio1/infiniband/rxe0/parent": "eth0\n",
		"devices/pci0000:00/0000:00:03.0/virtio1/infiniband/rxe0/device": "-> ../../../virtio1",
		"devices/pci0000:00/0000:00:03.0/msi_irqs/24":                    "msix\n",
	})}, nil)
	defer rxe.Close()
	want = []event.IRQ{{Line: 24, Name: "pcieport", Device: "rxe0"}}
	if diff := cmp.Diff(want, rxe.irqs(plant(t, map[string]string{"interrupts": interruptsX86}), nil)); diff != "" {
		t.Errorf("virtio (-want +got):\n%s", diff)
	}
	virtual := SnapshotDevices([]string{plant(t, map[string]string{
		"class/infiniband/rxe0":                                   "-> ../../devices/virtual/infiniband/rxe0",
		"devices/virtual/infiniband/rxe0/parent":                  "eth0\n",
		"class/net/eth0":                                          "-> ../../devices/pci0000:00/0000:00:03.0/virtio1/net/eth0",
		"devices/pci0000:00/0000:00:03.0/virtio1/net/eth0/device": "-> ../../../virtio1",
		"devices/pci0000:00/0000:00:03.0/msi_irqs/24":             "msix\n",
	})}, nil)
	defer virtual.Close()
	if diff := cmp.Diff(want, virtual.irqs(plant(t, map[string]string{"interrupts": interruptsX86}), nil)); diff != "" {
		t.Errorf("soft-RoCE without a device (-want +got):\n%s", diff)
	}
	if got := virtual.Finish()[0]; got.PCI != "0000:00:03.0" || !got.Software {
		t.Errorf("%+v", got)
	}
	if got := rxe.Finish()[0]; got.PCI != "0000:00:03.0" || !got.Software {
		t.Errorf("%+v", got)
	}
}

// wide is /proc/interrupts of a machine with many CPUs; counts are as wide as the
// kernel makes them (%10u).
func wide(cpus int, lines ...string) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", 5))
	for cpu := range cpus {
		fmt.Fprintf(&b, "CPU%-8d", cpu)
	}
	b.WriteString("\n")
	for i, line := range lines {
		fmt.Fprintf(&b, "%4d: ", 100+i)
		for cpu := range cpus {
			fmt.Fprintf(&b, "%10d ", (cpu+1)*4_000_000_000%4_294_967_295)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Two functions of a card whose interrupts have equal names, on 200 CPUs: each
// line keeps its device, as msi_irqs says.
func TestWideMachineEqualNames(t *testing.T) {
	d := SnapshotDevices([]string{plant(t, map[string]string{
		"class/infiniband/mlx5_0":                             "-> ../../devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0",
		"class/infiniband/mlx5_1":                             "-> ../../devices/pci0000:00/0000:03:00.1/infiniband/mlx5_1",
		"devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0/a": "",
		"devices/pci0000:00/0000:03:00.1/infiniband/mlx5_1/a": "",
		"devices/pci0000:00/0000:03:00.0/msi_irqs/100":        "msix\n",
		"devices/pci0000:00/0000:03:00.1/msi_irqs/101":        "msix\n",
	})}, nil)
	defer d.Close()
	const long = "an_interrupt_name_of_many_more_than_thirty_two_bytes@pci:0000:03:00.2"
	proc := plant(t, map[string]string{
		"interrupts": wide(200,
			"IR-PCI-MSIX-0000:03:00.0    1-edge      mlx5_comp0",
			"IR-PCI-MSIX-0000:03:00.1    1-edge      mlx5_comp0",
			"IR-PCI-MSI 1572864-edge      "+long),
		"irq/101/effective_affinity_list": "199\n",
	})
	want := []event.IRQ{
		{Line: 100, Name: "mlx5_comp0", Device: "mlx5_0"},
		{Line: 101, Name: "mlx5_comp0", Device: "mlx5_1", CPUs: "199"},
		{Line: 102, Name: long},
	}
	if diff := cmp.Diff(want, d.irqs(proc, []uint32{102})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
