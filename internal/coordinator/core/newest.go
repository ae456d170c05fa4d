package core

import (
	"fmt"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// newest is the newest document on one subject of the stream of intents, good or bad.
type newest[T any] struct {
	seq uint64 // 0: none was seen
	doc *T     // nil when bad
	bad *intents.Invalid
}

// read takes a message in, and reports whether it is newer than what was read before.
func (n *newest[T]) read(name string, msg bus.Msg, parse func(name string, data []byte) (T, *intents.Invalid)) bool {
	if msg.Seq <= n.seq {
		return false
	}
	*n = newest[T]{seq: msg.Seq}
	doc, bad := parse(name, msg.Data)
	if n.bad = bad; bad == nil {
		n.doc = &doc
	}
	return true
}

// rejected is the event about a bad document. kept is the sequence of the one in force, 0
// where there is none.
func (n *newest[T]) rejected(kept uint64) bus.Event {
	text := "nothing of this name runs"
	if kept != 0 {
		text = fmt.Sprintf("the intent of sequence %d stays in force", kept)
	}
	return bus.Event{Cause: "intent", Field: n.bad.Field, Seq: n.seq, Message: n.bad.Message + "; " + text}
}
