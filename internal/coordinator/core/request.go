package core

import "proxyfleet/internal/coordinator/intents"

// Request is what a person asks of the leader. [Reply] answers it with the same ID once
// what it decided is stored, since replies follow the commits of their step.
type Request struct {
	ID  uint64
	Ask Ask
}

func (Request) event() {}

// Ask is one thing that a person may ask for: each is a type of its own, whose exported
// fields are the request's document.
type Ask interface {
	// decide changes the model and returns what the person is told, or why nothing was done.
	decide(m *Model) (any, *intents.Invalid)
}

// Reply answers a [Request]: with Doc, or with what is wrong.
type Reply struct {
	ID  uint64
	Doc any // encodes as JSON
	Bad *intents.Invalid
}

func (Reply) command() {}

func (m *Model) onRequest(r Request) {
	doc, bad := r.Ask.decide(m)
	m.do(Reply{ID: r.ID, Doc: doc, Bad: bad})
}
