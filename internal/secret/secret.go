// Package secret holds the one type for text that must never be seen by people who
// read logs, spans, events or errors.
//
// It imports the standard library only, and everything may import it.
package secret

import (
	"fmt"
	"log/slog"
)

// Redacted is what every formatted secret looks like.
const Redacted = "[redacted]"

// String is a secret. It marshals to JSON and YAML as it is, because documents on the
// wire carry it, but prints as [Redacted] through fmt, slog and errors. Use
// [String.Reveal] at the one place that needs the text.
type String string

// Reveal returns the text. Call it only where the text goes to its consumer.
func (s String) Reveal() string { return string(s) }

// String implements [fmt.Stringer].
func (s String) String() string {
	if s == "" {
		return ""
	}
	return Redacted
}

// GoString implements [fmt.GoStringer], so that %#v is redacted too.
func (s String) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format implements [fmt.Formatter], so that no verb prints the text.
func (s String) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, s.String()) }

// LogValue implements [slog.LogValuer].
func (s String) LogValue() slog.Value { return slog.StringValue(s.String()) }
