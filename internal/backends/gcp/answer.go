package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"
)

// refusal is an answer that refuses a request.
type refusal struct {
	Status int
	Codes  []string // the API's reasons: "quotaExceeded", and of its details "SERVICE_DISABLED"
	Text   string
}

func (e *refusal) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("HTTP %d %s: %s", e.Status, strings.Join(e.Codes, ", "), e.Text), ": ")
}

// failure is an operation that was accepted and failed.
type failure struct {
	Operation string
	Status    int
	Faults    []fault
}

// fault is one error of an operation.
type fault struct {
	Code string // "ZONE_RESOURCE_POOL_EXHAUSTED"
	Text string
	Room []string // the zones that have room, where it says so
}

func (e *failure) Error() string {
	texts := make([]string, 0, len(e.Faults))
	for _, f := range e.Faults {
		text := f.Code + ": " + f.Text
		if len(f.Room) > 0 {
			text += " [room in " + strings.Join(f.Room, ", ") + "]"
		}
		texts = append(texts, text)
	}
	return "operation " + e.Operation + " failed: " + strings.Join(texts, "; ")
}

// room are the zones that a failure names as having some.
func (e *failure) room() (zones []string) {
	for _, f := range e.Faults {
		zones = append(zones, f.Room...)
	}
	return zones
}

// refused reads an answer of the clients.
func refused(err error) (*refusal, bool) {
	var answer *googleapi.Error
	if !errors.As(err, &answer) {
		return nil, false
	}
	r := &refusal{Status: answer.Code, Text: shown(answer.Message)}
	for _, item := range answer.Errors {
		r.Codes = append(r.Codes, item.Reason)
	}
	for _, d := range answer.Details {
		if m, ok := d.(map[string]any); ok {
			if reason, ok := m["reason"].(string); ok {
				r.Codes = append(r.Codes, reason)
			}
		}
	}
	if r.Text == "" {
		r.Text = http.StatusText(answer.Code)
	}
	slices.Sort(r.Codes)
	r.Codes = slices.Compact(r.Codes)
	return r, true
}

// outcome is how an operation that is done has ended.
func outcome(op *computepb.Operation) error {
	if len(op.GetError().GetErrors()) == 0 && op.GetHttpErrorStatusCode() < 300 {
		return nil
	}
	f := &failure{Operation: op.GetName(), Status: int(op.GetHttpErrorStatusCode())}
	for _, e := range op.GetError().GetErrors() {
		one := fault{Code: e.GetCode(), Text: shown(e.GetMessage())}
		for _, d := range e.GetErrorDetails() {
			if zones := d.GetErrorInfo().GetMetadatas()["zonesAvailable"]; zones != "" {
				for z := range strings.SplitSeq(zones, ",") {
					one.Room = append(one.Room, strings.TrimSpace(z))
				}
			}
		}
		f.Faults = append(f.Faults, one)
	}
	if len(f.Faults) == 0 {
		f.Faults = []fault{{Code: fmt.Sprintf("HTTP %d", f.Status), Text: op.GetHttpErrorMessage()}}
	}
	return f
}

// quoted is the value that an error about a field repeats: user-data, where the field is of the
// metadata.
var quoted = regexp.MustCompile(`(?s)(field '[^']*metadata[^']*': )'.*'`)

// shown is a text of the API's without what may be secret, and cut to a length that people read.
func shown(text string) string {
	const most = 2000
	text = quoted.ReplaceAllString(text, "$1'(not shown)'")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
