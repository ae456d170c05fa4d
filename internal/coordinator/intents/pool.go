package intents

import (
	"time"

	"proxyfleet/internal/bus"
)

const (
	minMaxAge    = time.Minute // less would be nothing but rotation
	maxMaxAge    = 10 * 365 * 24 * time.Hour
	defaultSurge = 1
)

// ParsePool is Parse for the document of a pool.
func ParsePool(name string, data []byte) (bus.PoolIntent, *Invalid) {
	var doc bus.PoolIntent
	if bad := decode(data, &doc); bad != nil {
		return bus.PoolIntent{}, bad
	}
	if doc.Desired == "" {
		doc.Desired = bus.DesiredRunning
	}
	if doc.ScaleDown == "" {
		doc.ScaleDown = "newest"
	}
	if doc.Update.Surge == nil {
		surge := defaultSurge
		doc.Update.Surge = &surge
	}
	if bad := checkPool(name, doc); bad != nil {
		return bus.PoolIntent{}, bad
	}
	doc.Type = bus.TypePool
	if bad := storable(doc); bad != nil {
		return bus.PoolIntent{}, bad
	}
	return doc, nil
}

func checkPool(name string, doc bus.PoolIntent) *Invalid {
	if bad := Label("name", doc.Name, bus.MaxPoolName); bad != nil {
		return bad
	}
	if doc.Name != name {
		return invalid("name", "is %q, but the document was published for %q", doc.Name, name)
	}
	if doc.Type != "" && doc.Type != bus.TypePool {
		return invalid("type", "is not %s", bus.TypePool)
	}
	switch doc.Desired {
	case bus.DesiredAbsent:
		return nil // what is to be removed needs no template
	case bus.DesiredRunning:
	case bus.DesiredStopped:
		return invalid("desired", "is stopped, which pools cannot be; a size of 0 leaves no member")
	default:
		return invalid("desired", "is neither running nor absent")
	}
	for _, f := range []func(bus.PoolIntent) *Invalid{checkSize, checkUpdate, checkRotation, checkTemplate} {
		if bad := f(doc); bad != nil {
			return bad
		}
	}
	return nil
}

func checkSize(doc bus.PoolIntent) *Invalid {
	switch {
	case doc.Size == nil && doc.Max == 0:
		return &Invalid{CodeMissing, "size", "must be there, or max (and min) if the size is set by requests"}
	case doc.Size != nil && (doc.Min != 0 || doc.Max != 0):
		return invalid("size", "stands beside min or max; only one of both may be given")
	case doc.Size != nil && (*doc.Size < 0 || *doc.Size > bus.MaxPoolSize):
		return invalid("size", "is not between 0 and %d", bus.MaxPoolSize)
	case doc.Max < 0 || doc.Max > bus.MaxPoolSize:
		return invalid("max", "is not between 1 and %d", bus.MaxPoolSize)
	case doc.Min < 0 || doc.Min > doc.Max:
		return invalid("min", "is not between 0 and max")
	}
	return nil
}

func checkUpdate(doc bus.PoolIntent) *Invalid {
	u := doc.Update
	switch {
	case u.MaxUnavailable < 0 || u.MaxUnavailable > bus.MaxPoolSize:
		return invalid("update.maxUnavailable", "is not between 0 and %d", bus.MaxPoolSize)
	case *u.Surge < 0 || *u.Surge > bus.MaxPoolSize:
		return invalid("update.surge", "is not between 0 and %d", bus.MaxPoolSize)
	case *u.Surge == 0 && u.MaxUnavailable == 0:
		return invalid("update.surge", "is 0, and so is maxUnavailable: no member could ever be replaced")
	case doc.Spread.MaxPerHost < 0:
		return invalid("spread.maxPerHost", "is negative")
	case doc.Spread.MaxPerZone < 0:
		return invalid("spread.maxPerZone", "is negative")
	case doc.ScaleDown != "newest" && doc.ScaleDown != "oldest":
		return invalid("scaleDown", "is neither newest nor oldest")
	}
	return nil
}

func checkRotation(doc bus.PoolIntent) *Invalid {
	r := doc.Rotation
	if r == nil {
		return nil
	}
	age, err := time.ParseDuration(r.MaxAge)
	if err != nil || age < minMaxAge || age > maxMaxAge {
		return invalid("rotation.maxAge", "is not a duration between 1m and ten years, as 24h")
	}
	if r.Jitter == "" {
		return nil
	}
	if jitter, err := time.ParseDuration(r.Jitter); err != nil || jitter < 0 || jitter > age/2 {
		return invalid("rotation.jitter", "is not a duration between 0s and half of maxAge")
	}
	return nil
}

func checkTemplate(doc bus.PoolIntent) *Invalid {
	if min, _ := doc.Bounds(); doc.Template.Placement.Host != "" && doc.Spread.MaxPerHost > 0 && min > doc.Spread.MaxPerHost {
		return invalid("spread.maxPerHost", "is less than the size, and template.placement.host allows one host only")
	}
	return Spec("template", doc.Template)
}
