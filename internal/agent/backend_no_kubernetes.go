//go:build no_kubernetes

package agent

func (c Config) kubernetesOpener() (opener, error) { return nil, leftOut("kubernetes") }
