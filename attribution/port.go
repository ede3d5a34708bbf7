package attribution

import "github.com/rdmatrace/rdmatrace/event"

// tracedPort is a port with what traced queue pairs moved through it.
type tracedPort struct {
	name       portName
	index      int16
	sent       int64 // payload bytes
	received   int64
	traffic    [2]portTraffic // see direction
	stalls     stallCount
	backlog    portBacklog
	link       perByte     // of the slower of link and PCIe; 0: unknown, or a software device
	overflow   *queueState // for queue pairs beyond queuesMost
	linkBPS    uint64
	pcieBPS    uint64
	isSoftware bool
}

// shared by several queue pairs.
func (p *tracedPort) shared() bool { return p.traffic[0].many || p.traffic[1].many }

// direction of the payload: READs bring it.
func direction(opcode uint8) int {
	if opcode == opRead {
		return 1
	}
	return 0
}

func newTracedPort(name portName, index int16, devices []event.Device) *tracedPort {
	p := &tracedPort{name: name, index: index}
	for i := range devices {
		d := &devices[i]
		if d.Name != name.device {
			continue
		}
		p.pcieBPS, p.isSoftware = d.PCIeBPS, d.Software
		for _, port := range d.Ports {
			if port.Number == int(name.number) {
				p.linkBPS = port.RateBPS
			}
		}
	}
	// What a software device announces as its rate says nothing about the path.
	if !p.isSoftware {
		p.link = max(perByteAt(p.linkBPS), perByteAt(p.pcieBPS))
	}
	return p
}

// portNumber of a queue pair: where it is not known, the only port of its device.
func portNumber(qp *queuePair, devices []event.Device) uint8 {
	if qp.port != 0 {
		return qp.port
	}
	for i := range devices {
		if devices[i].Name == qp.device && len(devices[i].Ports) == 1 {
			return uint8(devices[i].Ports[0].Number)
		}
	}
	return 1
}

// report puts the port's counters beside the traced bytes. Data counters are
// in units of 4 bytes and contain headers.
func (p *tracedPort) report(ctx *event.Context, b Backlog) PortReport {
	r := PortReport{
		Device:     p.name.device,
		Port:       int(p.name.number),
		RateBPS:    p.linkBPS,
		TracedSent: p.sent,
		TracedRecv: p.received,
		PortSent:   -1,
		PortRecv:   -1,
		Backlog:    b,
	}
	if seconds := float64(b.WindowNS) / 1e9; seconds > 0 {
		r.TracedBPS = float64(p.sent) * 8 / seconds
	}
	if port := findPort(ctx, p.name); port != nil {
		r.RateBPS = port.RateBPS
		if units, ok := counterDelta(port, "port_xmit_data"); ok {
			r.PortSent = int64(4 * units)
		}
		if units, ok := counterDelta(port, "port_rcv_data"); ok {
			r.PortRecv = int64(4 * units)
		}
	}
	return r
}
