package bus_test

import (
	"testing"

	"proxyfleet/internal/bus"
)

func TestSubjectsAreTakenApartAsTheyWereMade(t *testing.T) {
	for _, n := range []bus.Names{{}, {Root: "my-fleet"}} {
		for subject, want := range map[string]bus.Parsed{
			n.IntentProxy("p"):          {Kind: "intent", Class: "proxy", Name: "p"},
			n.IntentPool("q"):           {Kind: "intent", Class: "pool", Name: "q"},
			n.Assign("h", "p", "u"):     {Kind: "assign", Host: "h", Proxy: "p", UID: "u"},
			n.Ledger("host", "h"):       {Kind: "ledger", Class: "host", Name: "h"},
			n.Fence():                   {Kind: "fence"},
			n.Lease():                   {Kind: "lease"},
			n.StateHost("h"):            {Kind: "state", Host: "h", Class: "host"},
			n.StateProxy("h", "p", "u"): {Kind: "state", Host: "h", Class: "proxy", Proxy: "p", UID: "u"},
			n.Beat("h"):                 {Kind: "beat", Host: "h"},
		} {
			if got, ok := n.Parse(subject); !ok || got != want {
				t.Errorf("%s: got %+v, %v; want %+v", subject, got, ok, want)
			}
		}
	}
}

func TestOtherSubjectsAreNotTakenApart(t *testing.T) {
	for _, s := range []string{"", "fleet", "fleet.", "fleets.fence", "other.fence", "fleet.fence.x", "fleet.intent.proxy", "fleet.intent.proxy.a.b", "fleet.intent.proxies.a",
		"fleet.assign.h.p", "fleet.state.h.vm", "fleet.state.h.proxy.p", "fleet.state.h.other.p.u", "fleet.beat", "fleet.unknown.a"} {
		if p, ok := (bus.Names{}).Parse(s); ok {
			t.Errorf("%q: got %+v", s, p)
		}
	}
}
