package backends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestClassAndCauseBothMatch(t *testing.T) {
	err := fmt.Errorf("ensure: %w", Wrap(ErrNoCapacity, "write", io.ErrShortWrite, "no space for %s", "x"))
	if !errors.Is(err, ErrNoCapacity) || !errors.Is(err, io.ErrShortWrite) || Class(err) != ErrNoCapacity {
		t.Errorf("got class %v of %v", Class(err), err)
	}
	if got, want := err.Error(), "ensure: write: no space for x (short write)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheOutermostClassWins(t *testing.T) {
	inner := Errorf(ErrNotFound, "get", "gone")
	if got := Class(Wrap(ErrTransient, "create", inner, "vanished under us")); got != ErrTransient {
		t.Errorf("got %v, want Transient", got)
	}
}

func TestWithoutAClassAnErrorIsTransient(t *testing.T) {
	for err, want := range map[error]error{io.EOF: ErrTransient, nil: nil, ErrConflict: ErrConflict, fmt.Errorf("x: %w", ErrHostFault): ErrHostFault} {
		if got := Class(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
	if Wrap(ErrTransient, "op", nil, "nothing happened") != nil {
		t.Error("wrapping nothing gave an error")
	}
}

func TestTheEndOfAContextStaysVisible(t *testing.T) {
	if !Ended(Wrap(ErrTransient, "op", context.Canceled, "x")) || Ended(ErrTransient) || Ended(nil) {
		t.Error("Ended does not tell the end of a context from another error")
	}
}

func TestClassesCrossTheBusByName(t *testing.T) {
	for _, c := range classes {
		if ClassNamed(c.Error()) != c {
			t.Errorf("%v is lost on the way", c)
		}
	}
	if ClassNamed("Nonsense") != nil || ClassNamed("") != nil {
		t.Error("a name that is no class gave one")
	}
}

func TestInstanceNamesAreStableLabels(t *testing.T) {
	// A change of this name orphans every instance there is.
	if got, want := InstanceName("01jd3v6q4m8e2x5y7z9abcdefg"), "pf-bkm2aoep7mwlesck"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !dnsLabel(InstanceName("x"), 19) {
		t.Errorf("%s is no DNS label of 19 characters", InstanceName("x"))
	}
}

func TestAStepIsHeardOnlyWhereSomebodyListens(t *testing.T) {
	if err := Step(t.Context(), "x"); err != nil {
		t.Errorf("without a listener: got %v", err)
	}
	var heard []string
	ctx := WithSteps(t.Context(), func(l string) error { heard = append(heard, l); return io.EOF })
	if err := Step(ctx, "disk.create"); err != io.EOF || len(heard) != 1 || heard[0] != "disk.create" {
		t.Errorf("got %v, heard %v", err, heard)
	}
}
