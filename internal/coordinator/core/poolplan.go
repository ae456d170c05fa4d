package core

// terms are what a pool asks for, in numbers.
type terms struct {
	size           int
	surge          int
	maxUnavailable int
	newestFirst    bool   // when it shrinks
	absent         bool   // it is to go
	hold           string // why nothing at all is done, or empty
	full           string // why nothing new is made, or empty
	retry          bool   // sick members may be replaced now
}

// floor is how many healthy members are never given up.
func (t terms) floor() int { return max(t.size-t.maxUnavailable, 0) }

// atOnce is how many sick members are replaced at a time.
func (t terms) atOnce() int { return max(1, t.surge, t.maxUnavailable) }

// orders are what a pool does next.
type orders struct {
	retire  []member
	create  int
	change  []member // take their step
	condemn []member // are due from now on, for being sick
	wait    string
}

// plan decides what a pool does next, and is all there is to it: from what is asked for and
// the members as they are. It holds that
//
//   - ready members are given up only while more than the floor are ready;
//   - no more than size and surge exist, those counted that are not gone yet;
//   - members that do not serve go before those that do.
//
// It is asked again whenever a member changed, so it looks at single members only where
// there is something to be done about one.
func plan(t terms, r *roster) orders {
	var o orders
	if t.absent {
		for _, e := range r.all() {
			if e.life.stays() {
				o.retire = append(o.retire, e)
			}
		}
		return o
	}
	if t.hold != "" {
		o.wait = t.hold
		return o
	}
	g := giveUp{floor: t.floor(), ready: r.count[ready], weak: r.count[weak]}
	staying, due := r.staying(), len(r.due)
	if surplus := staying - due - t.size; surplus > 0 {
		for _, e := range r.expendable(t.newestFirst) {
			if surplus > 0 && g.may(e) {
				o.retire = append(o.retire, e)
				surplus--
			}
		}
	}
	if t.full == "" && (r.idleDue > 0 || due > 0 && g.any()) {
		for _, e := range r.among(r.due) {
			if g.may(e) {
				o.retire = append(o.retire, e)
				due--
			}
		}
	}
	if t.full != "" {
		o.wait = t.full
		return o
	}
	exist := staying + r.leaving()
	staying -= len(o.retire)
	if r.count[unplaced] == 0 { // else another would find no host either
		o.create = max(0, min(t.size+min(due, t.surge)-staying, t.size+t.surge-exist))
	}
	if len(o.retire) > 0 {
		return o // what concerns the others is decided without those
	}
	o.change = changes(t, r)
	if t.retry {
		o.condemn = r.among(r.sick)
		o.condemn = o.condemn[:min(len(o.condemn), t.atOnce())]
	}
	return o
}

// giveUp counts down what may be given up.
type giveUp struct{ floor, ready, weak int }

// any reports whether some member that serves may be given up.
func (g *giveUp) any() bool { return g.ready > g.floor || g.weak > 0 && g.ready+g.weak > g.floor }

// may reports whether a member may be given up, and counts it as gone then. A weak one
// serves somebody, so it is kept until healthy ones are there in its place.
func (g *giveUp) may(e member) bool {
	switch {
	case e.life == ready && g.ready > g.floor:
		g.ready--
	case e.life == weak && g.ready+g.weak > g.floor:
		g.weak--
	case e.serves():
		return false
	}
	return true
}

// changes are the members that take their step to the newest template now: those that
// serve nobody at once, the others one after another.
func changes(t terms, r *roster) []member {
	budget := max(1, t.maxUnavailable) - r.changing
	if r.easy == 0 && (budget <= 0 || len(r.behind) == 0) {
		return nil
	}
	var out []member
	for _, e := range r.among(r.behind) {
		switch {
		case e.atOnce():
			out = append(out, e)
		case budget > 0:
			budget--
			out = append(out, e)
		}
	}
	return out
}
