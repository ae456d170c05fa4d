package kubernetes

import (
	"errors"
	"net"
	"testing"
)

func TestNoConnectionComesAboutAfterTheEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c connections
	before, err := c.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.close()
	if _, err := before.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection from before: got %v, want that it is closed", err)
	}
	if _, err := c.dial(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection from after: got %v, want a refusal", err)
	}
}
