//go:build faults

package main

import (
	"context"
	"log/slog"
	"os"
	"syscall"

	"proxyfleet/internal/backends"
)

// faults makes the process die by SIGKILL right before the side effect with the label that
// PROXYFLEET_KILL_AT names, for tests that must see what a killed agent leaves. Builds
// without the tag "faults" have none of this.
func faults(log *slog.Logger) func(context.Context) context.Context {
	at := os.Getenv("PROXYFLEET_KILL_AT")
	if at == "" {
		return nil
	}
	log.Warn("this build kills itself", "at", at)
	return func(ctx context.Context) context.Context {
		return backends.WithSteps(ctx, func(label string) error {
			if label == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // the signal takes effect between instructions, not before the next one
			}
			return nil
		})
	}
}
