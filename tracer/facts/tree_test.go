package facts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plant makes a directory tree: path to content, "-> target" for a link, "|"
// for a FIFO-like trap that must not be opened (a directory is used).
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// mlx5Tree is a ConnectX as the kernel shows it, with what matters here.
var mlx5Tree = map[string]string{
	"class/infiniband/mlx5_0":                                                                            "-> ../../devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0",
	"devices/pci0000:00/0000:00:02.0/current_link_speed":                                                 "8.0 GT/s PCIe\n",
	"devices/pci0000:00/0000:00:02.0/current_link_width":                                                 "4\n",
	"devices/pci0000:00/0000:00:02.0/msi_irqs/24":                                                        "msi\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/current_link_speed":                                    "16.0 GT/s PCIe\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/current_link_width":                                    "16\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/numa_node":                                             "1\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/msi_irqs/41":                                           "msix\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/msi_irqs/40":                                           "msix\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/driver":                                                "-> ../../../../bus/pci/drivers/mlx5_core",
	"bus/pci/drivers/mlx5_core/module":                                                                   "",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/device":                              "-> ../../../0000:03:00.0",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/fw_ver":                              "22.36.1010\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/board_id":                            "MT_0000000359\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/state":                       "4: ACTIVE\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/rate":                        "200 Gb/sec (4X HDR)\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/lid":                         "0x1a\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/link_layer":                  "InfiniBand\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/counters/port_xmit_data":     "1000\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/counters/port_rcv_errors":    "0\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/counters/VL15_dropped":       "N/A (no PMA)\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": "18446744073709551615\n",
	"devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/hw_counters/lifespan":        "10\n",
}

const mlx5Port = "devices/pci0000:00/0000:00:02.0/0000:03:00.0/infiniband/mlx5_0/ports/1/"
