package bus_test

import (
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// A host needs its own consumer, acks, states, beats and inbox, and nothing else.
func TestAHostGetsAlongWithItsGrantsAlone(t *testing.T) {
	host := &natsserver.User{Username: "h1", Password: "x", Permissions: &natsserver.Permissions{
		Publish: &natsserver.SubjectPermission{Allow: []string{
			"$JS.API.CONSUMER.INFO.FLEET_ASSIGNMENTS.agent-h1",
			"$JS.API.CONSUMER.MSG.NEXT.FLEET_ASSIGNMENTS.agent-h1",
			"$JS.ACK.FLEET_ASSIGNMENTS.agent-h1.>",
			"fleet.state.h1.>", "fleet.beat.h1",
		}},
		Subscribe: &natsserver.SubjectPermission{Allow: []string{bus.InboxPrefix("agent-h1") + ".>"}},
	}}
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), Users: []*natsserver.User{{Username: "control", Password: "x"}, host}})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(bustest.Deadline) {
		t.Fatal("the server is not ready")
	}
	ctx := bustest.Context(t)
	password := write(t, t.TempDir()+"/password", "x")
	cfg := bus.ClientConfig{URL: srv.ClientURL(), User: "control", PasswordFile: password}
	nc, err := bus.Connect(cfg, "coordinator", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := bus.JetStream(nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Bootstrap(ctx, js, bus.Names{}, small); err != nil {
		t.Fatal(err)
	}
	f, err := bus.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")

	cfg.User = "h1"
	hostConn, err := bus.Connect(cfg, "agent-h1", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hostConn.Close)
	hostJS, err := bus.JetStream(hostConn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	link := bus.OpenHost(hostConn, hostJS, n, "h1", bustest.Log(t))
	t.Cleanup(link.Close)
	a := pull(t, link)
	commit(t, leader, assign(n, "h1", "p1", bus.NewULID()))
	a.next()
	link.PutState(state("p1", 1), nil)
	link.PutHost(bus.Host{})
	if err := link.Flush(ctx); err != nil {
		t.Errorf("states: %v", err)
	}
	if err := link.Beat(bus.Beat{}); err != nil {
		t.Error(err)
	}
	if err := hostConn.Flush(); err != nil {
		t.Error(err)
	}
	if err := hostConn.LastError(); err != nil && strings.Contains(err.Error(), "ermission") {
		t.Errorf("it asked for more than it was granted: %v", err)
	}
}
