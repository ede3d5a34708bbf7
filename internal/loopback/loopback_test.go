package loopback

import (
	"fmt"
	"net"
	"testing"
)

func TestListening(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if is, err := Listening(port); is || err != nil {
		t.Errorf("before: %v, %v", is, err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	if is, err := Listening(port); !is || err != nil {
		t.Errorf("while somebody listens: %v, %v", is, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if is, err := Listening(port); is || err != nil {
		t.Errorf("after: %v, %v", is, err)
	}
}
