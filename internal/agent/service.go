package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
)

// Status answers the verb status: what an agent says of its host at the moment.
type Status struct {
	Host         string   `json:"host"`
	Installation string   `json:"installation,omitempty"` // empty until a coordinator admitted it
	Document     bus.Host `json:"document"`               // as published last
	Recorded     int      `json:"recorded"`               // assignments on disk, tombstones included
	Seq          uint64   `json:"seq"`                    // highest sequence among them
}

// Instance is one assignment as it is recorded, without its spec: that has secrets.
type Instance struct {
	Proxy      string      `json:"proxy"`
	Pool       string      `json:"pool,omitempty"`
	UID        string      `json:"uid"`
	Generation uint64      `json:"generation"`
	Desired    bus.Desired `json:"desired"`
	Seq        uint64      `json:"seq"`
}

// answer serves the micro service of this host, below fleet.host.<host>: status, checks and
// instances. It only shows what the agent knows; orders come as assignments and in no other
// way. An agent that cannot serve it works all the same.
func (a *Agent) answer(ctx context.Context, nc *nats.Conn) {
	if err := a.serveRequests(ctx, nc); err != nil && ctx.Err() == nil {
		a.log.Warn("requests about this host are not answered", "error", err)
	}
}

func (a *Agent) serveRequests(ctx context.Context, nc *nats.Conn) error {
	root := cmp.Or(a.cfg.Root, bus.DefaultRoot)
	svc, err := micro.AddService(nc, micro.Config{
		Name: root + "-host", Version: cmp.Or(a.opts.Version, "0.0.0"),
		Description:        "Shows what the agent of a host knows. It changes nothing.",
		Metadata:           map[string]string{"host": a.cfg.Host.Name, "hostId": a.HostID()},
		QueueGroupDisabled: true, // two agents of one name are a mistake that should show
	})
	if err != nil {
		return err
	}
	defer svc.Stop() //nolint:errcheck // the connection may be closed
	group := svc.AddGroup(strings.Join([]string{root, "host", a.cfg.Host.Name}, "."))
	for _, v := range []struct {
		name, about string
		show        func() any
	}{
		{"status", "The host's document, and how much is recorded.", a.showStatus},
		{"checks", "What was found wrong with the host, and what is in order.", func() any { return a.out.document().Checks }},
		{"instances", "Every assignment that is recorded, without its secrets.", a.showInstances},
	} {
		h := micro.HandlerFunc(func(r micro.Request) { _ = r.RespondJSON(v.show()) })
		if err := group.AddEndpoint(v.name, h, micro.WithEndpointMetadata(map[string]string{"description": v.about})); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func (a *Agent) showStatus() any {
	entries, seq := a.record.snapshot()
	return Status{Host: a.cfg.Host.Name, Document: a.out.document(), Recorded: len(entries), Seq: seq, Installation: a.id.get().Installation}
}

func (a *Agent) showInstances() any {
	entries, _ := a.record.snapshot()
	out := []Instance{}
	for _, e := range entries {
		d := e.Assignment
		out = append(out, Instance{Proxy: d.Proxy, Pool: d.Pool, UID: d.UID, Generation: d.Generation, Desired: d.Desired, Seq: e.Seq})
	}
	slices.SortFunc(out, func(x, y Instance) int {
		return cmp.Or(cmp.Compare(x.Proxy, y.Proxy), cmp.Compare(x.UID, y.UID))
	})
	return out
}
