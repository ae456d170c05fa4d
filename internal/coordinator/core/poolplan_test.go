package core

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWhatAPoolDoesNext gives the plan members, numbered from 1, and reads its orders.
//
// A member is a letter (R ready, W weak, C coming, F failed, U without host, S on a silent
// host, L leaving, A adrift), with marks behind it: d due, s sick, p pinned, n needs to be
// told only, i can change in place, c was changed and is not ready since, x is on another host as well.
func TestWhatAPoolDoesNext(t *testing.T) {
	three := terms{size: 3, surge: 1, newestFirst: true, retry: true}
	with := func(change func(*terms)) terms {
		out := three
		change(&out)
		return out
	}
	surge0 := with(func(t *terms) { t.surge, t.maxUnavailable = 0, 1 })
	wide := with(func(t *terms) { t.surge, t.maxUnavailable = 2, 1 })
	oldest := with(func(t *terms) { t.newestFirst = false })
	none := with(func(t *terms) { t.size = 0 })
	absent := with(func(t *terms) { t.absent = true })
	paused := with(func(t *terms) { t.hold = "paused" })
	full := with(func(t *terms) { t.full = "streams are full" })
	later := with(func(t *terms) { t.retry = false })
	for name, c := range map[string]struct {
		terms   terms
		members string
		want    string
	}{
		"an empty pool is filled":                               {three, "", "create 3"},
		"a full one is left alone":                              {three, "R R R", ""},
		"members that come up slowly are not doubled":           {three, "C C U", ""},
		"a missing one is made anew":                            {three, "R R", "create 1"},
		"what leaves counts until it is gone":                   {three, "L L L", "create 1"},
		"what a host brought back counts until it is gone":      {three, "Rx Rx", ""},
		"what leaves a silent host does not":                    {three, "A A A", "create 3"},
		"while one waits for a host no other is made":           {three, "R U", ""},
		"a member on a silent host is still one":                {three, "R R S", ""},
		"one without a host that is condemned makes way":        {three, "R R Usd", "retire 3"},
		"an absent pool gives up everything":                    {absent, "R C Fs U S L", "retire 1 2 3 4 5"},
		"an absent pool gives up what is due as well":           {absent, "Rd Rp", "retire 1 2"},
		"a paused pool does nothing":                            {paused, "R Rd Fs Ri R R", "wait paused"},
		"a full stream adds nothing":                            {full, "R Rd", "wait streams are full"},
		"a full stream still lets a pool shrink":                {full, "R R R R", "retire 4; wait streams are full"},
		"a full stream does not take what could not come again": {full, "R R Cd", "wait streams are full"},

		"it shrinks by the newest":                         {three, "R R R R", "retire 4"},
		"it shrinks by the oldest where that is asked for": {oldest, "R R R R", "retire 1"},
		"it shrinks by those without a host first":         {three, "R U C R Fs", "retire 2 5"},
		"it shrinks by a failed one before one that comes": {three, "R R C Fs", "retire 4"},
		"it shrinks by weak ones before ready ones":        {three, "W R R R", "retire 1"},
		"it shrinks by one on a silent host":               {three, "S R R R", "retire 1"},
		"it shrinks by pinned ones last":                   {three, "R R R R Rp", "retire 4 3"},
		"it shrinks to nothing":                            {none, "R W C U", "retire 4 3 2 1"},
		"it shrinks by no ready one that is needed":        {three, "R R R C C", "retire 5 4"},
		"it shrinks by what is due rather than by others":  {three, "Rd R R R", "retire 1"},

		"a replacement is made before the old one goes":         {three, "Rd R R", "create 1"},
		"while it comes up nothing goes":                        {three, "Rd R R C", ""},
		"without a host for it nothing goes":                    {three, "Rd R R U", ""},
		"once it is ready the old one goes":                     {three, "Rd R R R", "retire 1"},
		"the next one waits until the old one is gone":          {three, "L Rd R R", ""},
		"the next one follows then":                             {three, "Rd R R", "create 1"},
		"all that expire at once go one after another":          {three, "Rd Rd Rd", "create 1"},
		"and the oldest first":                                  {three, "Rd Rd Rd R", "retire 1"},
		"with more surge several are made at once":              {wide, "Rd Rd Rd", "retire 1; create 2"},
		"without surge one goes first":                          {surge0, "Rd Rd Rd", "retire 1"},
		"without surge its successor waits until it is gone":    {surge0, "L Rd Rd", ""},
		"without surge its successor is made then":              {surge0, "Rd Rd", "create 1"},
		"without surge no second one goes before that is ready": {surge0, "C Rd Rd", ""},
		"what is due and serves nobody goes at once":            {three, "Cd R R", "retire 1; create 1"},
		"a weak one stays until ready ones are enough":          {three, "Wd R R", "create 1"},
		"a weak one goes once they are":                         {three, "Wd R R R", "retire 1"},
		"weak ones do not hold up one another":                  {three, "Wd Wd R R", "retire 1"},
		"a ready one stays while a weak one is counted on":      {three, "Rd W R R", ""},
		"nothing ready goes while one is on a silent host":      {three, "Rd R S R", ""},
		"while it grows nothing is replaced":                    {with(func(t *terms) { t.size = 5 }), "Rd Rd Rd", "create 3"},

		"a failed one is condemned":                           {three, "R R Fs", "condemn 3"},
		"a condemned one is replaced at once":                 {three, "R R Fsd", "retire 3; create 1"},
		"not before the time for it has come":                 {later, "R R Fs", ""},
		"failed ones are condemned a few at a time":           {three, "Fs Fs Fs", "condemn 1"},
		"as many as may be replaced at a time":                {wide, "Fs Fs Fs", "condemn 1 2"},
		"one that goes anyway is not condemned":               {three, "R R R Fs", "retire 4"},
		"one that is weak for long is condemned":              {three, "R R Ws", "condemn 3"},
		"one that is condemned and weak is not given up soon": {three, "R R Wsd", "create 1"},

		"one member changes in place at a time":               {three, "Ri Ri Ri", "change 1"},
		"the next waits for it":                               {three, "Rc Ri Ri", ""},
		"more at a time where more may be missing":            {with(func(t *terms) { t.maxUnavailable = 2 }), "Ri Ri Ri", "change 1 2"},
		"what serves nobody changes at once":                  {three, "Rc Ci Ui", "change 2 3"},
		"what needs to be told only is told at once":          {three, "Rc Rn Rn", "change 2 3"},
		"one that changed and is unwell holds up the others":  {three, "Wc Ri Ri", ""},
		"a change and a replacement go on beside one another": {three, "Ri Rd R", "create 1; change 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoster()
			for _, e := range parseMembers(t, c.members) {
				r.put(e)
			}
			if got := plan(c.terms, &r).String(); got != c.want {
				t.Errorf("%q: got %q, want %q", c.members, got, c.want)
			}
		})
	}
}

func parseMembers(t *testing.T, text string) (out []member) {
	t.Helper()
	for i, word := range strings.Fields(text) {
		e := member{proxy: &proxy{}, number: uint64(i + 1)}
		letters := map[byte]life{'R': ready, 'W': weak, 'C': coming, 'F': failed, 'U': unplaced, 'S': silent, 'L': leaving, 'A': adrift}
		if e.life = letters[word[0]]; e.life == 0 {
			t.Fatalf("no member is %q", word)
		}
		for _, mark := range word[1:] {
			switch mark {
			case 'd':
				e.due = due{cause: "rotation"}
			case 's':
				e.sick = true
			case 'p':
				e.pinned = true
			case 'n':
				e.step = note
			case 'i':
				e.step = inPlace
			case 'c':
				e.changing = true
			case 'x':
				e.double = true
			}
		}
		out = append(out, e)
	}
	return out
}

func (o orders) String() string {
	var parts []string
	list := func(what string, es []member) {
		if len(es) > 0 {
			for _, e := range es {
				what += fmt.Sprint(" ", e.number)
			}
			parts = append(parts, what)
		}
	}
	list("retire", o.retire)
	if o.create > 0 {
		parts = append(parts, fmt.Sprint("create ", o.create))
	}
	list("change", o.change)
	list("condemn", o.condemn)
	if o.wait != "" {
		parts = append(parts, "wait "+o.wait)
	}
	return strings.Join(parts, "; ")
}

// However members change, the roster counts them as one that was filled with them anew.
func TestTheRosterCountsWhatItHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		proxies := make([]*proxy, 5)
		for i := range proxies {
			proxies[i] = &proxy{}
		}
		got, now := newRoster(), map[*proxy]member{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			e := member{
				proxy: rapid.SampledFrom(proxies).Draw(t, "member"), life: life(rapid.IntRange(int(absent), int(ready)).Draw(t, "life")),
				host: rapid.SampledFrom([]string{"", "h1", "h2"}).Draw(t, "host"), step: step(rapid.IntRange(int(none), int(inPlace)).Draw(t, "step")),
				changing: rapid.Bool().Draw(t, "changing"), double: rapid.Bool().Draw(t, "double"), sick: rapid.Bool().Draw(t, "sick"),
			}
			if rapid.Bool().Draw(t, "due") {
				e.due.cause = "rotation"
			}
			got.put(e)
			now[e.proxy] = e
		}
		want := newRoster()
		for _, e := range now {
			want.put(e)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
