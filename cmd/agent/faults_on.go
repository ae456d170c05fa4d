//go:build faults

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"proxyfleet/internal/backends"
)

// faults lets a test see and cut off what the agent does. Right before each side effect its
// label is appended, as a line, to the file that PROXYFLEET_STEPS names; before the one that
// PROXYFLEET_KILL_AT names the process dies by SIGKILL. Builds without the tag "faults"
// have none of this.
func faults(log *slog.Logger) func(context.Context) context.Context {
	at, steps := os.Getenv("PROXYFLEET_KILL_AT"), os.Getenv("PROXYFLEET_STEPS")
	if at == "" && steps == "" {
		return nil
	}
	log.Warn("this build tells its steps or kills itself", "killAt", at, "steps", steps)
	return func(ctx context.Context) context.Context {
		return backends.WithSteps(ctx, func(label string) error {
			if steps != "" {
				if err := appendLine(steps, label); err != nil {
					log.Error("a step was not told; the test that reads them is blind", "step", label, "err", err)
				}
			}
			if label == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // the signal takes effect between instructions, not before the next one
			}
			return nil
		})
	}
}

// appendLine adds a line in one write, so that lines of several goroutines stay whole.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
