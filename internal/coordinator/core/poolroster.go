package core

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// life is how far a member is, as its pool counts it. Of those that stay, the lower ones
// are the first to go when the pool shrinks.
type life int

const (
	absent   life = iota // nothing of it is left
	adrift               // goes, but what is left is on hosts that are silent
	leaving              // goes, and is not gone yet
	unplaced             // waits for a host
	failed               // cannot be made
	coming               // is being made
	silent               // its host is silent, or says nothing of itself
	weak                 // runs, and fails its health check
	ready                // runs, and has an address
	lives                // how many there are
)

// stays reports whether a member of this life is one that the pool has.
func (l life) stays() bool { return l >= unplaced }

// step is what a member that has not the newest template needs to have it.
type step int

const (
	none    step = iota
	note         // nothing but being told
	inPlace      // its host changes it in place
)

// due is why a member is to be replaced; the zero value means that it is not.
type due struct{ cause, why string }

// member is a proxy as its pool sees it: a value, so that a change is seen by comparison.
type member struct {
	proxy    *proxy
	number   uint64
	life     life
	host     string // that it takes room on, or empty
	due      due
	step     step
	double   bool      // an earlier binding of it, from a host that was lost, is there as well
	changing bool      // was changed in place, and is not ready since
	sick     bool      // failed, or weak for long
	pinned   bool      // no rotation replaces it
	wakeAt   time.Time // when it is to be judged again; zero: not by time
}

// roster is the members of one pool, counted by what matters for its next decision, so that
// a decision need not look at each of them.
type roster struct {
	members  map[*proxy]member
	count    [lives]int
	due      map[*proxy]bool // staying, to be replaced
	idleDue  int             // of them: neither ready nor weak
	behind   map[*proxy]bool // staying, not due, have a step to take
	easy     int             // of them: may take it at once
	changing int
	double   int
	sick     map[*proxy]bool // staying, not due
	onHost   map[string]int
}

func newRoster() roster {
	return roster{members: map[*proxy]member{}, due: map[*proxy]bool{}, behind: map[*proxy]bool{}, sick: map[*proxy]bool{}, onHost: map[string]int{}}
}

// serves reports whether clients may be using the member.
func (e member) serves() bool { return e.life == ready || e.life == weak }

// atOnce reports whether a step needs no caution.
func (e member) atOnce() bool { return e.step == note || !e.serves() }

// put makes the roster count a member as it is now, and returns how it was.
func (r *roster) put(now member) (was member) {
	was = r.members[now.proxy]
	if was == now {
		return was
	}
	r.tally(was, -1)
	delete(r.members, now.proxy)
	delete(r.due, now.proxy)
	delete(r.behind, now.proxy)
	delete(r.sick, now.proxy)
	if now.life == absent {
		return was
	}
	r.members[now.proxy] = now
	r.tally(now, 1)
	if !now.life.stays() {
		return was
	}
	if now.due != (due{}) {
		r.due[now.proxy] = true
		return was
	}
	if now.step != none {
		r.behind[now.proxy] = true
	}
	if now.sick {
		r.sick[now.proxy] = true
	}
	return was
}

func (r *roster) tally(e member, by int) {
	if e.life == absent {
		return
	}
	r.count[e.life] += by
	if e.host != "" {
		if r.onHost[e.host] += by; r.onHost[e.host] == 0 {
			delete(r.onHost, e.host)
		}
	}
	if !e.life.stays() {
		return
	}
	if e.changing {
		r.changing += by
	}
	if e.double {
		r.double += by
	}
	switch {
	case e.due != (due{}):
		if !e.serves() {
			r.idleDue += by
		}
	case e.step != none && e.atOnce():
		r.easy += by
	}
}

// staying is how many members the pool has, those that leave left out.
func (r *roster) staying() (n int) {
	for l := unplaced; l < lives; l++ {
		n += r.count[l]
	}
	return n
}

// leaving is how many more than those are not gone yet.
func (r *roster) leaving() int { return r.count[leaving] + r.double }

// empty reports whether nothing of any member is left.
func (r *roster) empty() bool { return len(r.members) == 0 }

// among returns the members of a set, the oldest first.
func (r *roster) among(set map[*proxy]bool) []member {
	out := make([]member, 0, len(set))
	for p := range set {
		out = append(out, r.members[p])
	}
	slices.SortFunc(out, func(a, b member) int { return cmp.Compare(a.number, b.number) })
	return out
}

// expendable returns the staying members that are not due, in the order in which they go
// when the pool shrinks: the least healthy first, pinned ones last, then by number.
func (r *roster) expendable(newestFirst bool) []member {
	var out []member
	for _, e := range r.members {
		if e.life.stays() && e.due == (due{}) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b member) int {
		byNumber := cmp.Compare(a.number, b.number)
		if newestFirst {
			byNumber = -byNumber
		}
		return cmp.Or(cmp.Compare(a.life, b.life), boolean(a.pinned, b.pinned), byNumber)
	})
	return out
}

// boolean orders false before true.
func boolean(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// all returns every member, the oldest first.
func (r *roster) all() []member {
	return slices.SortedFunc(maps.Values(r.members), func(a, b member) int { return cmp.Compare(a.number, b.number) })
}
