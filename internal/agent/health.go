package agent

import "errors"

// Health is nil while the agent does its work. A server that is away is not ill health: the
// agent works on with what is recorded, and a restart would not bring the server back.
func (a *Agent) Health() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused != "" {
		return errors.New(a.refused)
	}
	for _, c := range a.ownChecks {
		if c.Target == targetBackend || c.Target == targetStreams {
			return errors.New(c.Message)
		}
	}
	return nil
}
