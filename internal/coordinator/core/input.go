package core

import (
	"time"

	"proxyfleet/internal/bus"
)

// Input is one step's worth of what happened.
type Input struct {
	Now    time.Time // never before an earlier step's
	Seed   [16]byte  // fresh entropy for the uids that this step may make
	Stored uint64    // highest sequence in the assignments of what this leader stored itself
	Events []Event
}

// Event is something that happened: one of the types below.
type Event interface{ event() }

// Message is a message of the streams of intents, assignments (with ledger) or states:
// one that was stored before, or a new one. The leader's own writes come back as messages.
type Message bus.Msg

// CaughtUp says that every message that was stored has been given. Decisions begin. Lost
// says what shows that some of them are missing; empty: nothing does. Intents is the last
// sequence of the stream of intents.
type CaughtUp struct {
	Lost    string
	Intents uint64
}

// Beat is a host's sign of life.
type Beat struct {
	Host string
	Doc  bus.Beat
}

// Pulls answers [AskPulls]: whether somebody waits for the host's assignments.
type Pulls struct {
	Host    string
	Pulling bool
}

// Usage tells that a stream is so full that only deletions should be taken on. Full is
// empty when none is.
type Usage struct{ Full string }

// Reconnected says that the connection was lost and is back: what was silent meanwhile may
// not have been.
type Reconnected struct{}

// Tick says that time has passed. Once per second is often enough.
type Tick struct{}

func (Message) event()     {}
func (CaughtUp) event()    {}
func (Beat) event()        {}
func (Pulls) event()       {}
func (Usage) event()       {}
func (Reconnected) event() {}
func (Tick) event()        {}
