package agent

import "time"

// backoff is how long to wait after n failures in a row: min after the first, doubling up
// to max, of which the upper half is spread by spread (0 ≤ spread < 1), so that things that
// failed together do not come back together.
func backoff(n int, min, max time.Duration, spread float64) time.Duration {
	d := max
	if shift := n - 1; shift < 32 && min<<shift>>shift == min && min<<shift < max {
		d = min << shift
	}
	return d/2 + time.Duration(spread*float64(d/2))
}

// around spreads d by a tenth either way.
func around(d time.Duration, spread float64) time.Duration {
	return d + time.Duration((spread-0.5)*0.2*float64(d))
}

// pollDelay is the pause before the next look at something that should come up, by how long
// it has been awaited: quickly at first, for containers and processes take milliseconds,
// then slower, for a guest that boots takes minutes.
func pollDelay(waited time.Duration) time.Duration {
	switch {
	case waited < time.Second:
		return 100 * time.Millisecond
	case waited < 15*time.Second:
		return 500 * time.Millisecond
	case waited < time.Minute:
		return time.Second
	case waited < 10*time.Minute:
		return 5 * time.Second
	default:
		return 15 * time.Second
	}
}
