//go:build !faults

package main

import (
	"context"
	"log/slog"
)

// faults is nothing in a normal build; see faults_on.go.
func faults(*slog.Logger) func(context.Context) context.Context { return nil }
