package attribution

// channel is a completion channel of a process: the file on which completion
// queues announce completions.
type channel struct {
	cqs        int    // completion queues on it
	latestReap uint64 // of any of them
}

type channelKey struct {
	pid uint32
	fd  int32
}

// onChannel puts a completion queue onto the channel with a descriptor, -1: none
// or unknown.
func (o *objects) onChannel(c *completionQueue, fd int32) {
	if c.channel != nil && c.fd == fd {
		return
	}
	o.offChannel(c)
	c.fd = fd
	if fd < 0 {
		return
	}
	k := channelKey{c.pid, fd}
	if o.channels[k] == nil {
		o.channels[k] = new(channel)
	}
	c.channel = o.channels[k]
	c.channel.cqs++
}

func (o *objects) offChannel(c *completionQueue) {
	if c == nil || c.channel == nil {
		return
	}
	if c.channel.cqs--; c.channel.cqs == 0 {
		delete(o.channels, channelKey{c.pid, c.fd})
	}
	c.channel, c.fd = nil, -1
}

// reapedSince says whether any of its completion queues was reaped from at t or
// later; c may be nil.
func (c *channel) reapedSince(t uint64) bool { return c != nil && c.latestReap >= t }
