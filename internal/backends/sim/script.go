package sim

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"proxyfleet/internal/backends"
)

// script is how one instance behaves; see the package documentation.
type script struct {
	EnsureError string        `json:"ensureError,omitempty"`
	GetError    string        `json:"getError,omitempty"`
	DeleteError string        `json:"deleteError,omitempty"`
	Times       int           `json:"times,omitempty"`
	Slow        time.Duration `json:"slow,omitempty"`
	Steps       int           `json:"steps,omitempty"`
	SlowDelete  time.Duration `json:"slowDelete,omitempty"`
	NoAddress   time.Duration `json:"noAddress,omitempty"`
	CrashAfter  time.Duration `json:"crashAfter,omitempty"`
	VanishAfter time.Duration `json:"vanishAfter,omitempty"`
}

const maxSteps = 10_000

// parseScript reads the "#sim" lines of user-data; everything else is ignored.
func parseScript(userData []byte) (script, error) {
	var s script
	for line := range bytes.Lines(userData) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "#sim ")
		if !ok {
			continue
		}
		for _, directive := range strings.Fields(rest) {
			if err := s.set(directive); err != nil {
				return script{}, err
			}
		}
	}
	return s, nil
}

func (s *script) set(directive string) error {
	key, value, _ := strings.Cut(directive, "=")
	var err error
	switch key {
	case "ensure-error":
		s.EnsureError, err = value, knownClass(value)
	case "get-error":
		s.GetError, err = value, knownClass(value)
	case "delete-error":
		s.DeleteError, err = value, knownClass(value)
	case "times":
		s.Times, err = strconv.Atoi(value)
	case "steps":
		s.Steps, err = strconv.Atoi(value)
		if err == nil && (s.Steps < 1 || s.Steps > maxSteps) {
			err = fmt.Errorf("want 1 to %d", maxSteps)
		}
	case "slow":
		s.Slow, err = time.ParseDuration(value)
	case "slow-delete":
		s.SlowDelete, err = time.ParseDuration(value)
	case "no-address":
		s.NoAddress, err = time.ParseDuration(value)
	case "crash-after":
		s.CrashAfter, err = time.ParseDuration(value)
	case "vanish-after":
		s.VanishAfter, err = time.ParseDuration(value)
	default:
		err = fmt.Errorf("no such directive")
	}
	if err != nil {
		return fmt.Errorf("#sim %s: %w", directive, err)
	}
	return nil
}

func knownClass(name string) error {
	if backends.ClassNamed(name) == nil {
		return fmt.Errorf("%q is no error class", name)
	}
	return nil
}
