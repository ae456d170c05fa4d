package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"proxyfleet/internal/backends"
)

// nobody is a ULID that nobody has.
const nobody = "00000000000000000000000000"

type checkCmd struct {
	configPath
	Timeout time.Duration `default:"15s" help:"Longest time for all checks (default: ${default})."`
}

// Run prints a table of verdicts. It works beside a running agent.
func (c checkCmd) Run(ctx context.Context) error {
	// Before the first contact a host belongs to nobody. A check marks nothing, so any name
	// will do.
	_, b, err := c.openBackend(backends.Owner{Installation: nobody, HostID: nobody})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	found := b.Check(ctx)
	if _, err := b.Offer(ctx); err != nil {
		found = append(found, backends.TargetHealth{Target: "offer", Code: backends.CheckAPIError, Message: err.Error()})
	} else {
		found = append(found, backends.TargetHealth{Target: "offer", Code: backends.CheckOK})
	}
	return errors.Join(printChecks(os.Stdout, found), b.Close())
}

// printChecks writes a table, and fails when a verdict is not OK.
func printChecks(w io.Writer, found []backends.TargetHealth) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "TARGET\tVERDICT\tMESSAGE")
	failed := false
	for _, h := range found {
		failed = failed || h.Code != backends.CheckOK
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", h.Target, h.Code, text(h))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if failed {
		return errChecks
	}
	return nil
}

func text(h backends.TargetHealth) string {
	parts := []string{}
	if h.Message != "" {
		parts = append(parts, h.Message)
	}
	for _, k := range slices.Sorted(maps.Keys(h.Details)) {
		parts = append(parts, k+"="+h.Details[k])
	}
	return strings.Join(parts, " ")
}
