package guest

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/loopback"
)

// pair is a server on rxe0 and a client on rxe1. They agree over TCP through a
// relay, so that the client can be held before it sends its first message.
type pair struct {
	server, client *process
	relay          *relay
}

// program is one that the tests trace. The GID is rxe's first, the link-local
// address: what is sent there crosses the wire.
type program struct {
	name, argv string
	events     bool // it sleeps until an interrupt brings completions, else it polls
	sends      int64
	receives   int64 // completed
	posted     bool  // the receives, before the client asks for its server
}

// startServer starts the server and a relay to it, and gives what a client
// runs; the port is what it has to be told.
func startServer(t *testing.T, argv string) (p *pair, client []string) {
	t.Helper()
	port, err := loopback.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p = &pair{server: command(words(argv, "-d rxe0 -p", port)...)}
	p.server.start(t)
	waitFor(t, p.server.name+" to listen", func() bool {
		p.server.running(t)
		is, err := loopback.Listening(port)
		if err != nil {
			t.Fatal(err)
		}
		return is
	})
	p.relay = startRelay(t, port)
	return p, words(argv, "-d rxe1 -p", p.relay.port, "127.0.0.1")
}

// startPair starts both; the client is held until release.
func startPair(t *testing.T, argv string) *pair {
	t.Helper()
	p, client := startServer(t, argv)
	p.client = command(client...)
	p.client.start(t)
	waitFor(t, "the client to ask for its server", func() bool {
		p.client.running(t)
		return p.relay.asked()
	})
	return p
}

// traced traces the client from before its first work request to the end of both, and
// demands a sound report.
func (p *pair) traced(t *testing.T) *traced {
	t.Helper()
	tr := startTrace(t, "-p", strconv.Itoa(p.client.Process.Pid))
	p.relay.release()
	p.client.wait(t)
	p.server.wait(t)
	got := tr.result(t)
	got.sound(t)
	return got
}

// words of a command line.
func words(parts ...any) []string { return strings.Fields(fmt.Sprintln(parts...)) }

// relay passes one TCP connection on, once it is released.
type relay struct {
	port       int
	connection chan struct{} // closed when the client has connected
	open       chan struct{} // closed by release
}

func startRelay(t *testing.T, to int) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &relay{port: l.Addr().(*net.TCPAddr).Port, connection: make(chan struct{}), open: make(chan struct{})}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		close(r.connection)
		select {
		case <-r.open:
		case <-ended:
			return
		}
		server, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", to), 10*time.Second)
		if err != nil {
			return // the client notices
		}
		defer server.Close()
		done := make(chan struct{})
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.(*net.TCPConn).CloseWrite()
			close(done)
		}()
		_, _ = io.Copy(client, server)
		_ = client.(*net.TCPConn).CloseWrite()
		<-done
	}()
	return r
}

func (r *relay) asked() bool {
	select {
	case <-r.connection:
		return true
	default:
		return false
	}
}

func (r *relay) release() { close(r.open) }
