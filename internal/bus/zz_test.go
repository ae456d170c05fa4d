package bus_test

import (
	"testing"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestZZ(t *testing.T) {
	s, f := bustest.Fleet(t)
	l := bustest.Lead(t, f, "x")
	_ = f.AdmitHost(bustest.Context(t), "h")
	h := s.Host("h")
	go func() { _ = h.Assignments(t.Context(), func(d []bus.Delivery) error { return nil }) }()
	_, js := s.Connect("i")
	info := func() {
		c, err := js.Consumer(bustest.Context(t), f.Names().Assignments(), "agent-h")
		if err != nil { t.Fatal(err) }
		i := c.CachedInfo()
		t.Logf("delivered %+v ack %+v pending %d ackpending %d", i.Delivered, i.AckFloor, i.NumPending, i.NumAckPending)
	}
	info()
	as := bustest.Follow(t, f, f.Names().Assignments(), "")
	_ = l.Commit(bustest.Context(t), []bus.Write{{Subject: f.Names().Assign("h", "p", "u"), Data: []byte("{}")}})
	m := as.Newest(f.Names().Assign("h", "p", "u"), func(bus.Msg) error { return nil })
	bustest.Eventually(t, "x", func() error { return nil })
	info()
	t.Log(l.Retire(bustest.Context(t), m, bus.Msg{Subject: f.Names().StateProxy("h","p","u"), Seq: 1}))
	info()
	t.Log(f.ResyncHost(bustest.Context(t), "h"))
	info()
}
