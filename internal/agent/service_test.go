package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus/bustest"
)

func TestAnAgentShowsWhatItKnowsAndNoSecrets(t *testing.T) {
	r := newRig(t)
	nc, _ := r.server.Connect("people")
	ask := func(subject string, into any) error {
		m, err := nc.Request(subject, nil, time.Second)
		if err != nil {
			return err
		}
		if strings.Contains(string(m.Data), "10.0.0.0") || m.Header.Get(micro.ErrorCodeHeader) != "" {
			t.Errorf("%s answers %s, %v", subject, m.Data, m.Header)
		}
		return json.Unmarshal(m.Data, into)
	}
	a := r.assignment("crawl-1", "")
	r.assign(a)
	bustest.Eventually(t, "the instance is shown", func() error {
		var got []Instance
		if err := ask("fleet.host.host-1.instances", &got); err != nil {
			return err
		}
		if len(got) != 1 || got[0].UID != a.UID || got[0].Desired != a.Desired {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	bustest.Eventually(t, "the status is shown", func() error {
		var got Status
		if err := ask("fleet.host.host-1.status", &got); err != nil {
			return err
		}
		if got.Host != host || got.Recorded != 1 || got.Seq == 0 || got.Installation == "" || got.Document.HostID != r.agent.HostID() {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	if err := ask("fleet.host.host-1.checks", &[]any{}); err != nil {
		t.Error(err)
	}
	var info micro.Info
	if err := ask("$SRV.INFO.fleet-host", &info); err != nil || info.Metadata["host"] != host || len(info.Endpoints) != 3 {
		t.Errorf("got %+v, %v", info, err)
	}
}
