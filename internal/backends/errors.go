package backends

import (
	"context"
	"errors"
	"fmt"
)

// The classes of errors; each is there because somebody acts on it. Test with errors.Is.
// An error without a class counts as Transient.
var (
	ErrNotFound   = errors.New("NotFound")   // the backend said that it is not there
	ErrNoCapacity = errors.New("NoCapacity") // quota, space, memory, ports: try another host
	ErrTransient  = errors.New("Transient")  // the agent tries again
	ErrPermanent  = errors.New("Permanent")  // this intent cannot be made here
	ErrHostFault  = errors.New("HostFault")  // credentials, TLS, privileges: the host's trouble
	ErrConflict   = errors.New("Conflict")   // someone else's thing is in the way
)

var classes = []error{ErrNotFound, ErrNoCapacity, ErrTransient, ErrPermanent, ErrHostFault, ErrConflict}

// Error is a class, the operation, a message for people and the raw cause.
type Error struct {
	Class   error  // one of the classes above
	Op      string // "define domain", "download image"
	Message string // what happened, to which thing, what to do; no secrets
	Cause   error  // raw, may be nil
}

// Errorf makes an Error without a cause.
func Errorf(class error, op, format string, args ...any) error {
	return &Error{Class: class, Op: op, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives cause a class. A nil cause gives nil. A cause that ends a context keeps
// matching context.Canceled or DeadlineExceeded.
func Wrap(class error, op string, cause error, format string, args ...any) error {
	if cause == nil {
		return nil
	}
	return &Error{Class: class, Op: op, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// Judge is Wrap for an error of a client library: judge gives its class, and what to do about
// it where there is something to say. An [*Error] stays as it is.
func Judge(op string, err error, judge func(error) (class error, hint string), format string, args ...any) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	class, hint := judge(err)
	message := fmt.Sprintf(format, args...)
	if hint != "" {
		message += "; " + hint
	}
	return Wrap(class, op, err, "%s", message)
}

func (e *Error) Error() string {
	s := e.Op + ": " + e.Message
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Unwrap makes both class and cause match errors.Is.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Cause}
}

// Class returns the class of err: its own, Transient for any other error, nil for nil.
// The outermost class wins.
func Class(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) && e.Class != nil {
		return e.Class
	}
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return ErrTransient
}

// ClassNamed returns the class whose text is name, as it crosses the bus, or nil.
func ClassNamed(name string) error {
	for _, c := range classes {
		if c.Error() == name {
			return c
		}
	}
	return nil
}

// Ended reports whether err is only the end of its context.
func Ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
