package facts

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

func set(t *testing.T, root, name, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDevice(t *testing.T) {
	root := plant(t, mlx5Tree)
	d := SnapshotDevices([]string{"/nonexistent", root}, nil)
	defer d.Close()
	set(t, root, mlx5Port+"counters/port_xmit_data", "5000\n")
	want := []event.Device{{
		Name: "mlx5_0", Driver: "mlx5_core", Firmware: "22.36.1010", PCI: "0000:03:00.0",
		NUMANode: 1, PCIeBPS: 252061538461,
		Ports: []event.Port{{
			Number: 1, LinkLayer: "InfiniBand", State: "ACTIVE", RateBPS: 200e9, LID: 26,
			Counters: []event.PortCounter{
				{Name: "hw_counters/out_of_sequence", Start: 1<<64 - 1, Stop: 1<<64 - 1},
				{Name: "port_rcv_errors"},
				{Name: "port_xmit_data", Start: 1000, Stop: 5000},
			},
		}},
	}}
	if diff := cmp.Diff(want, d.Finish()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if n := d.Notes(); n != nil {
		t.Errorf("notes: %q", n)
	}
	// Read again later: the latest reading counts.
	set(t, root, mlx5Port+"counters/port_xmit_data", "6000\n")
	if got := d.Finish()[0].Ports[0].Counters[2]; got.Start != 1000 || got.Stop != 6000 {
		t.Errorf("later reading: %+v", got)
	}
}

// What was counted before the window and after it does not count.
func TestCountersOfTheWindow(t *testing.T) {
	root := plant(t, mlx5Tree)
	d := SnapshotDevices([]string{root}, nil)
	defer d.Close()
	counts := func(value string) { set(t, root, mlx5Port+"counters/port_xmit_data", value+"\n") }
	counts("2000")
	d.Begin()
	counts("3000")
	d.End()
	counts("9000")
	if got := d.Finish()[0].Ports[0].Counters[2]; got.Start != 2000 || got.Stop != 3000 {
		t.Errorf("%+v", got)
	}
}

// A counter that has gone at the end has no difference.
func TestCounterGone(t *testing.T) {
	root := plant(t, mlx5Tree)
	d := SnapshotDevices([]string{root}, nil)
	defer d.Close()
	if err := os.Remove(filepath.Join(root, mlx5Port+"counters/port_xmit_data")); err != nil {
		t.Fatal(err)
	}
	if got := d.Finish()[0].Ports[0].Counters; len(got) != 2 {
		t.Errorf("counters: %+v", got)
	}
	if n := d.Notes(); len(n) != 1 || !strings.Contains(n[0], "mlx5_0 port 1") {
		t.Errorf("notes: %q", n)
	}
}

// Variations of the tree, and what changes with them.
func TestDeviceVariations(t *testing.T) {
	const fn = "devices/pci0000:00/0000:00:02.0/0000:03:00.0/"
	const ib = fn + "infiniband/mlx5_0/"
	cases := []struct {
		name   string
		add    map[string]string
		drop   []string
		expect func(d *event.Device)
	}{
		{"virtual function", map[string]string{
			fn + "current_link_speed": "Unknown\n",
			fn + "current_link_width": "0\n",
			fn + "physfn":             "-> ../0000:03:00.1",
			"devices/pci0000:00/0000:00:02.0/0000:03:00.1/current_link_speed": "5.0 GT/s PCIe\n",
			"devices/pci0000:00/0000:00:02.0/0000:03:00.1/current_link_width": "8\n",
		}, nil, func(d *event.Device) { d.PCIeBPS = 32e9 }},
		{"no NUMA", map[string]string{fn + "numa_node": "-1\n"}, nil, func(d *event.Device) { d.NUMANode = -1 }},
		{"generation 6", map[string]string{fn + "current_link_speed": "64.0 GT/s PCIe\n"}, nil,
			func(d *event.Device) { d.PCIeBPS = 944e9 }},
		{"emulated", map[string]string{ib + "board_id": "SOFT000000001\n"}, nil,
			func(d *event.Device) { d.Software, d.Driver = true, "softmlx5" }},
		{"rxe", map[string]string{ib + "parent": "eth0\n"}, nil,
			func(d *event.Device) { d.Software, d.Driver = true, "rdma_rxe" }},
		{"no driver, no firmware", nil, []string{fn + "driver", ib + "fw_ver"},
			func(d *event.Device) { d.Driver, d.Firmware = "", "" }},
		{"port down", map[string]string{
			ib + "ports/1/state": "1: DOWN\n", ib + "ports/1/rate": "", ib + "ports/1/lid": "0xffff\n",
		}, nil, func(d *event.Device) {
			d.Ports[0].State, d.Ports[0].RateBPS, d.Ports[0].LID = "DOWN", 0, 65535
		}},
		{"no counters", nil, []string{ib + "ports/1/counters", ib + "ports/1/hw_counters"},
			func(d *event.Device) { d.Ports[0].Counters = nil }},
		{"counters of the device", map[string]string{ib + "hw_counters/rx_pause": "7\n"},
			[]string{ib + "ports/1/counters", ib + "ports/1/hw_counters"},
			func(d *event.Device) {
				d.Ports[0].Counters = []event.PortCounter{{Name: "hw_counters/rx_pause", Start: 7, Stop: 7}}
			}},
		{"hostile text", map[string]string{ib + "fw_ver": "\xff\x00fw\xc3"}, nil,
			func(d *event.Device) { d.Firmware = "\uFFFD\x00fw\uFFFD" }},
		{"link out of the tree", map[string]string{ib + "fw_ver": "-> /etc/hostname"}, nil,
			func(d *event.Device) { d.Firmware = "" }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			files := maps.Clone(mlx5Tree)
			maps.Copy(files, tc.add)
			for _, drop := range tc.drop {
				maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, drop) })
			}
			plain := SnapshotDevices([]string{plant(t, mlx5Tree)}, nil)
			defer plain.Close()
			want := plain.Finish()
			tc.expect(&want[0])
			d := SnapshotDevices([]string{plant(t, files)}, nil)
			defer d.Close()
			if diff := cmp.Diff(want, d.Finish()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// An attribute that is a FIFO must not stop us.
func TestAttributeIsFIFO(t *testing.T) {
	root := plant(t, mlx5Tree)
	name := filepath.Join(root, mlx5Port+"counters/blocks")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	d := SnapshotDevices([]string{root}, nil)
	defer d.Close()
	if got := len(d.Finish()[0].Ports[0].Counters); got != 3 {
		t.Errorf("%d counters", got)
	}
}

// The first root has a name; the others add what it does not have.
func TestRootsInOrder(t *testing.T) {
	emulated := maps.Clone(mlx5Tree)
	emulated["devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/board_id"] = "SOFT000000001"
	real := map[string]string{
		"class/infiniband/mlx5_0/fw_ver": "real",
		"class/infiniband/siw0/fw_ver":   "",
	}
	roots := []string{plant(t, emulated), plant(t, real)}
	d := SnapshotDevices(roots, nil)
	defer d.Close()
	got := d.Finish()
	if len(got) != 2 || got[0].Name != "mlx5_0" || !got[0].Software || got[0].Firmware != "22.36.1010" ||
		got[1].Name != "siw0" || got[1].Driver != "siw" || got[1].NUMANode != -1 {
		t.Errorf("%+v", got)
	}
	one := SnapshotDevices(roots, []string{"siw0", "mlx5_7"})
	defer one.Close()
	if got := one.Finish(); len(got) != 1 || got[0].Name != "siw0" {
		t.Errorf("%+v", got)
	}
	if n := one.Notes(); len(n) != 1 || !strings.Contains(n[0], "mlx5_7") {
		t.Errorf("notes: %q", n)
	}
}

func TestRates(t *testing.T) {
	for _, tc := range []struct {
		speed, width string
		want         uint64
	}{
		{"2.5 GT/s PCIe", "1", 2e9},
		{"8.0 GT/s PCIe", "8", 63015384615},
		{"32.0 GT/s PCIe", "16", 504123076923},
		{"Unknown speed", "16", 0}, {"", "", 0}, {"16.0 GT/s PCIe", "255", 0}, {"-1 GT/s", "1", 0},
		{"NaN GT/s", "1", 0}, {"1e300 GT/s", "1", 0},
	} {
		if got := pcieRate(tc.speed, tc.width); got != tc.want {
			t.Errorf("PCIe %q x %q: %d, want %d", tc.speed, tc.width, got, tc.want)
		}
	}
	for in, want := range map[string]uint64{
		"100 Gb/sec (4X EDR)": 100e9, "2.5 Gb/sec (1X SDR)": 2.5e9, "": 0, "fast": 0, "NaN Gb/sec": 0, "1e99 Gb/sec": 0,
	} {
		if got := portRate(in); got != want {
			t.Errorf("port %q: %d, want %d", in, got, want)
		}
	}
}
