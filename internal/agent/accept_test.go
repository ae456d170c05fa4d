package agent

import (
	"testing"

	"proxyfleet/internal/bus"
)

func TestWhichAssignmentsAreTaken(t *testing.T) {
	me := who{HostID: "h", Installation: "i"}
	doc := func(generation uint64, desired bus.Desired) bus.Assignment {
		return bus.Assignment{Installation: "i", HostID: "h", UID: "u", Generation: generation, Desired: desired}
	}
	run, absent := bus.DesiredRunning, bus.DesiredAbsent
	held := func(seq, generation uint64, desired bus.Desired) *entry { return &entry{doc(generation, desired), seq} }
	for name, c := range map[string]struct {
		doc  bus.Assignment
		seq  uint64
		held *entry
		gone *retired
		want verdict
	}{
		"a new uid":                                       {doc(1, run), 5, nil, nil, take},
		"a newer generation":                              {doc(2, run), 6, held(5, 1, run), nil, take},
		"the same generation written again":               {doc(1, run), 6, held(5, 1, run), nil, take},
		"a redelivery":                                    {doc(1, run), 5, held(5, 1, run), nil, ignore},
		"a late older one":                                {doc(1, run), 4, held(5, 2, run), nil, ignore},
		"a lower generation with a higher sequence":       {doc(1, run), 6, held(5, 2, run), nil, ignore},
		"a tombstone":                                     {doc(2, absent), 6, held(5, 1, run), nil, take},
		"a late tombstone":                                {doc(2, absent), 4, held(5, 2, run), nil, ignore},
		"a late assignment while its uid is deleted":      {doc(1, run), 5, held(6, 2, absent), nil, ignore},
		"a decision newer than the tombstone":             {doc(3, run), 7, held(6, 2, absent), nil, take},
		"a late assignment of a retired uid":              {doc(1, run), 5, nil, &retired{Seq: 6, Generation: 2}, ignore},
		"a lower generation of a retired uid":             {doc(1, run), 9, nil, &retired{Seq: 6, Generation: 2}, ignore},
		"the tombstone of a retired uid once more":        {doc(2, absent), 6, nil, &retired{Seq: 6, Generation: 2}, take},
		"a decision newer than a retired uid's tombstone": {doc(2, run), 7, nil, &retired{Seq: 6, Generation: 2}, take},
		"of another host id":                              {bus.Assignment{Installation: "i", HostID: "x", UID: "u"}, 1, nil, nil, refuse},
		"of another installation":                         {bus.Assignment{Installation: "x", HostID: "h", UID: "u"}, 1, nil, nil, refuse},
		"a tombstone of another host id":                  {bus.Assignment{Installation: "i", HostID: "x", UID: "u", Desired: absent}, 9, held(5, 1, run), nil, refuse},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := accept(c.doc, c.seq, me, c.held, c.gone)
			if got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
			if (why != "") != (got == refuse) {
				t.Errorf("reason %q for verdict %d", why, got)
			}
		})
	}
}
