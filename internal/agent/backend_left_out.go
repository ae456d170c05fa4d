//go:build no_gcp || no_kubernetes

package agent

import "fmt"

// leftOut says that this program was built without a backend, by the build tag no_KIND. Hosts
// that run guests of their own have no use for the libraries of Kubernetes and Compute Engine,
// which are two thirds of the program and of the memory that it maps.
func leftOut(kind string) error {
	return fmt.Errorf("backend.type: this agent was built without %s; install the one that has every backend", kind)
}
