package libvirttest

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// Counter is a way to a daemon's socket on which calls are counted.
type Counter struct {
	Socket string
	calls  atomic.Int64
}

// Calls is how many there were since it was last asked.
func (c *Counter) Calls() int { return int(c.calls.Swap(0)) }

// CountCalls listens beside the daemon's socket until t ends.
func (d Daemon) CountCalls(t testing.TB) *Counter {
	t.Helper()
	c := &Counter{Socket: d.path("counted")}
	listener, err := net.Listen("unix", c.Socket)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			daemon, err := net.Dial("unix", d.path("sock/libvirt-sock"))
			if err != nil {
				_ = client.Close()
				continue
			}
			go join(client, daemon)
			go c.count(daemon, client)
		}
	}()
	return c
}

// A packet begins with its length and a header: program, version, procedure, type, serial,
// status, four bytes each. Source: https://libvirt.org/kbase/internals/rpc.html.
const (
	headerLen  = 28
	headerType = 16
	typeCall   = 0
)

// count copies packets and counts those that are calls.
func (c *Counter) count(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	var header [headerLen]byte
	for {
		if _, err := io.ReadFull(from, header[:]); err != nil {
			return
		}
		if binary.BigEndian.Uint32(header[headerType:]) == typeCall {
			c.calls.Add(1)
		}
		rest := int64(binary.BigEndian.Uint32(header[:])) - headerLen
		if _, err := to.Write(header[:]); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, rest); err != nil {
			return
		}
	}
}
