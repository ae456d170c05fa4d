package core

import (
	"testing"

	"proxyfleet/internal/bus"
)

// A server that became the leader of a stream a moment ago may not have its end yet.
func TestIntentsThatComeLateAreNoSetback(t *testing.T) {
	w := newWorld()
	w.settle(CaughtUp{}, w.publishHost("kvm-1", w.host("kvm-1")))
	w.settle(Message(w.store(w.cfg.Names.IntentProxy("crawl-1"), []byte(intentText("crawl-1", "")))))
	late := w.store(w.cfg.Names.IntentProxy("crawl-1"), []byte(intentText("crawl-1", `{"desired":"stopped"}`)))
	w.settle(Message(late))

	delete(w.stored, late.Subject)
	w.model = New(w.cfg)
	w.settle(append(w.everything(), CaughtUp{Intents: late.Seq - 1})...)
	w.settle(Message(late))
	w.now = w.now.Add(2 * setbackPatience)
	w.settle(Tick{})
	if p := w.model.proxies["crawl-1"]; w.model.frozen != "" || p.ledger.IntentSeq != late.Seq || p.ledger.Accepted.Desired != bus.DesiredStopped {
		t.Errorf("got %q, %+v", w.model.frozen, p.ledger)
	}
}
