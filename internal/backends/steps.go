package backends

import "context"

type stepKey struct{}

// WithSteps returns a context whose side effects call before with their label first. An
// error from it ends the call as if the side effect had failed. It is for tests and for
// builds that are made to crash at a step; without it Step costs a map lookup.
func WithSteps(ctx context.Context, before func(label string) error) context.Context {
	return context.WithValue(ctx, stepKey{}, before)
}

// Step announces a side effect. Every backend calls it right before each of them, with a
// stable label such as "volume.create", and once more with "done" before a successful
// return of Ensure or Delete.
func Step(ctx context.Context, label string) error {
	if before, ok := ctx.Value(stepKey{}).(func(string) error); ok {
		return before(label)
	}
	return nil
}
