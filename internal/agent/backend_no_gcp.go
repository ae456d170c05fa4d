//go:build no_gcp

package agent

func (c Config) gcpOpener() (opener, error) { return nil, leftOut("gcp") }
