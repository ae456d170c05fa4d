package libvirt

import (
	"encoding/binary"
	"io"
	"net"
)

// streamOrder is a connection whose streams begin after the reply to the call that opened them,
// and end once. libvirtd keeps neither: its main loop may send a stream's first data before
// a worker sends the reply, and a second packet after the one that ended it. go-libvirt relies
// on both. It takes the first packet for the reply, whatever it is, and loses it, and a packet
// after the end is handed to nobody while its reader holds the lock that everybody needs: the
// call hangs for ever, whatever becomes of the connection. So the order is made here.
//
// Calls on a connection follow one another, so their serials only rise.
type streamOrder struct {
	net.Conn
	pass    []byte // what is yet to be handed on: a head, or packets that were held back
	left    int    // bytes of a payload that follow pass
	held    []byte // packets of a stream whose call has no reply yet
	replied int32  // serial of the last reply
	ended   int32  // serial of the last stream that ended
}

// The head of a packet: its length, the head included, then program, version, procedure,
// type, serial and status, four bytes each. Source: src/rpc/virnetprotocol.x of libvirt.
const (
	packetHead      = 28
	packetReply     = 1
	packetStream    = 3
	packetContinues = 2 // the status of a stream that goes on
)

// Read implements net.Conn.
func (c *streamOrder) Read(p []byte) (int, error) {
	for len(c.pass) == 0 && c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.pass) > 0 {
		n := copy(p, c.pass)
		c.pass = c.pass[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// next reads the head of a packet, and all of one that is held back or dropped.
func (c *streamOrder) next() error {
	head := make([]byte, packetHead)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return err
	}
	be := binary.BigEndian
	payload := int(be.Uint32(head)) - packetHead
	if payload < 0 {
		return io.ErrUnexpectedEOF
	}
	serial := int32(be.Uint32(head[20:]))
	switch be.Uint32(head[16:]) {
	case packetReply:
		c.replied = serial
		if len(c.held) > 0 {
			whole, err := c.packet(head, payload)
			c.pass, c.held = append(whole, c.held...), nil
			return err
		}
	case packetStream:
		if c.ended == serial {
			_, err := io.CopyN(io.Discard, c.Conn, int64(payload))
			return err
		}
		if payload == 0 || be.Uint32(head[24:]) != packetContinues {
			c.ended = serial
		}
		if c.replied != serial {
			whole, err := c.packet(head, payload)
			c.held = append(c.held, whole...)
			return err
		}
	}
	c.pass, c.left = head, payload
	return nil
}

// packet reads the rest of a packet.
func (c *streamOrder) packet(head []byte, payload int) ([]byte, error) {
	whole := append(head, make([]byte, payload)...)
	_, err := io.ReadFull(c.Conn, whole[packetHead:])
	return whole, err
}
