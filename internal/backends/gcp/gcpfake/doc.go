// Package gcpfake is Compute Engine in a test.
package gcpfake
