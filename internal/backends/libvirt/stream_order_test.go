package libvirt

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// sentPacket is what matters of a packet here.
type sentPacket struct {
	kind, serial, status uint32
	payload              string
}

func (p sentPacket) bytes() []byte {
	var b []byte
	for _, n := range []uint32{uint32(packetHead + len(p.payload)), 0x20008086, 1, 209, p.kind, p.serial, p.status} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, p.payload...)
}

func TestAStreamBeginsAfterItsReplyAndEndsOnce(t *testing.T) {
	const ok = 0
	reply := func(serial uint32) sentPacket { return sentPacket{packetReply, serial, ok, "reply"} }
	data := func(serial uint32, text string) sentPacket {
		return sentPacket{packetStream, serial, packetContinues, text}
	}
	event := sentPacket{2, 0, ok, "an event"}
	for name, c := range map[string]struct{ sent, want []sentPacket }{
		"in order":                 {[]sentPacket{reply(7), data(7, "one"), data(7, "two"), data(7, "")}, []sentPacket{reply(7), data(7, "one"), data(7, "two"), data(7, "")}},
		"two ends":                 {[]sentPacket{reply(7), data(7, "one"), data(7, ""), {packetStream, 7, ok, ""}, reply(8)}, []sentPacket{reply(7), data(7, "one"), data(7, ""), reply(8)}},
		"data before the reply":    {[]sentPacket{data(7, "one"), event, data(7, ""), reply(7), reply(8)}, []sentPacket{event, reply(7), data(7, "one"), data(7, ""), reply(8)}},
		"two ends, and no reply":   {[]sentPacket{data(7, ""), {packetStream, 7, ok, ""}, reply(7)}, []sentPacket{reply(7), data(7, "")}},
		"an error ends a stream":   {[]sentPacket{reply(7), {packetStream, 7, 1, "why"}, {packetStream, 7, 1, "why"}}, []sentPacket{reply(7), {packetStream, 7, 1, "why"}}},
		"an upload's confirmation": {[]sentPacket{reply(7), {packetStream, 7, ok, ""}, reply(8), {packetStream, 8, ok, ""}}, []sentPacket{reply(7), {packetStream, 7, ok, ""}, reply(8), {packetStream, 8, ok, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			var sent, want []byte
			for _, p := range c.sent {
				sent = append(sent, p.bytes()...)
			}
			for _, p := range c.want {
				want = append(want, p.bytes()...)
			}
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				_, _ = io.Copy(server, iotest.OneByteReader(bytes.NewReader(sent)))
				_ = server.Close()
			}()
			got, err := io.ReadAll(&streamOrder{Conn: client})
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestAPacketThatIsShorterThanItsHeadEndsTheConnection(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		_, _ = server.Write(make([]byte, packetHead))
		_ = server.Close()
	}()
	if _, err := (&streamOrder{Conn: client}).Read(make([]byte, 10)); err != io.ErrUnexpectedEOF {
		t.Errorf("got %v", err)
	}
}
