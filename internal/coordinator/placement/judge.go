package placement

import (
	"maps"
	"slices"
)

// Verdict is what [Choose] thinks of one host.
type Verdict struct {
	Host   *Host
	Why    Why     // why it does not fit
	Liking int     // how much it has of what is preferred: one for the zone, one for each label
	Load   float64 // share of its scarcest resource that would be taken; 0 where it does not fit
}

// Judge looks at every host: those that fit come first, in the order in which they would be
// taken, then the others by name.
func Judge(hosts map[string]*Host, req *Request) []Verdict {
	out := make([]Verdict, 0, len(hosts))
	bindings := map[*Host]Binding{}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		b, why := Fit(h, req)
		v := Verdict{Host: h, Why: why, Liking: liking(h, &req.Spec.Placement.Prefer)}
		if why.Fits() {
			bindings[h], v.Load = b, load(h, b.Shape)
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b Verdict) int {
		ab, aFits := bindings[a.Host]
		bb, bFits := bindings[b.Host]
		switch {
		case aFits && (!bFits || better(a.Host, &ab, b.Host, &bb, req)):
			return -1
		case bFits:
			return 1
		}
		return 0
	})
	return out
}
