package attribution

import "github.com/rdmatrace/rdmatrace/event"

// Config is what analysis knows before the first event.
type Config struct {
	// Devices are the RDMA devices of the targets with their link and PCIe
	// rates. They may be empty: then nothing is called path-limit.
	Devices []event.Device
}
