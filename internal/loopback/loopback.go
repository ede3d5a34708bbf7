// Package loopback helps to start a server on this machine and to know when a
// client may come.
package loopback

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// FreePort is a TCP port that nobody listened on just now.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// Listening reports whether somebody listens on a TCP port, in the network
// namespace of this process. It looks in /proc/net: a connection would be taken
// for a client.
func Listening(port int) (bool, error) {
	want := fmt.Sprintf(":%04X", port)
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without it
		}
		if err != nil {
			return false, fmt.Errorf("look for listening sockets: %w", err)
		}
		for line := range strings.Lines(string(raw)) {
			// sl local remote st: 0A is TCP_LISTEN (net/tcp_states.h)
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" {
				return true, nil
			}
		}
	}
	return false, nil
}
