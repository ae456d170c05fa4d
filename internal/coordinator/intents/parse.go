package intents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"proxyfleet/internal/bus"
)

// Codes of an [Invalid].
const (
	CodeTooLarge  = "TooLarge"  // over bus.MaxIntentBytes or bus.MaxUserDataBytes
	CodeMalformed = "Malformed" // not JSON of the right types
	CodeUnknown   = "UnknownField"
	CodeInvalid   = "Invalid" // a value that is not allowed
	CodeMissing   = "Missing" // a value that must be there
)

// Invalid says why an intent is refused. Message never repeats a value that may be secret.
type Invalid struct {
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"` // path, as "spec.placement.host"; empty: the whole document
	Message string `json:"message"`
}

func (e *Invalid) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Parse reads the intent of the proxy named by its subject: strictly (an unknown field is
// an error, names match by exact case), with defaults filled in. Any error is an [*Invalid].
func Parse(name string, data []byte) (bus.Intent, *Invalid) {
	var doc bus.Intent
	if bad := decode(data, &doc); bad != nil {
		return bus.Intent{}, bad
	}
	if doc.Desired == "" {
		doc.Desired = bus.DesiredRunning
	}
	if bad := check(name, doc); bad != nil {
		return bus.Intent{}, bad
	}
	doc.Type = bus.TypeIntent
	if bad := storable(doc); bad != nil {
		return bus.Intent{}, bad
	}
	return doc, nil
}

// MaxStored is how large an accepted intent may be as the ledger stores it. An entry holds
// it twice while a change waits (as accepted and as bound), with room for what else it
// remembers, and must fit into a message of 1 MiB, the server's default max_payload.
const MaxStored = 448 << 10

func storable(doc any) *Invalid {
	if size := len(bus.Encode(doc)); size > MaxStored {
		return &Invalid{CodeTooLarge, "", fmt.Sprintf("the document takes %d bytes as it is stored (some characters take six); at most %d are allowed", size, MaxStored)}
	}
	return nil
}

// Name reads no more than the name of an intent, for requests that have no subject.
func Name(data []byte) (string, *Invalid) { return name(data, bus.MaxProxyName) }

// PoolName is Name for the document of a pool.
func PoolName(data []byte) (string, *Invalid) { return name(data, bus.MaxPoolName) }

func name(data []byte, max int) (string, *Invalid) {
	var doc struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return "", malformed(err)
	}
	if bad := Label("name", doc.Name, max); bad != nil {
		return "", bad
	}
	return doc.Name, nil
}

// decode fills *into from data. encoding/json alone would take "Spec" for "spec" and
// could not say where an unknown field stands, so the names are compared first.
func decode(data []byte, into any) *Invalid {
	if len(data) > bus.MaxIntentBytes {
		return &Invalid{CodeTooLarge, "", fmt.Sprintf("the document has %d bytes; at most %d are allowed", len(data), bus.MaxIntentBytes)}
	}
	if !utf8.Valid(data) {
		return &Invalid{CodeMalformed, "", "the document is not UTF-8; user-data that is not text belongs into spec.cloudInitBase64"}
	}
	var raw any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&raw); err != nil {
		return malformed(err)
	}
	if dec.More() {
		return &Invalid{CodeMalformed, "", "something follows the document"}
	}
	if _, object := raw.(map[string]any); !object {
		return &Invalid{CodeMalformed, "", "the document is not a JSON object"}
	}
	if path := repeated(data); path != "" {
		return &Invalid{CodeMalformed, shortened(path), "stands there twice"}
	}
	if path := unknownField(reflect.TypeOf(into).Elem(), raw, ""); path != "" {
		return &Invalid{CodeUnknown, shortened(path), "there is no such field"}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return malformed(err)
	}
	return nil
}

// maxPath bounds what a refusal repeats of a document.
const maxPath = 200

func shortened(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath], "") + "…"
}

// malformed keeps values out of the message: encoding/json quotes a number that does not
// fit, and never a string.
func malformed(err error) *Invalid {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		kind, _, _ := strings.Cut(typ.Value, " ")
		return &Invalid{CodeMalformed, typ.Field, fmt.Sprintf("is a %s, not a %s", kind, jsonKind(typ.Type))}
	}
	return &Invalid{CodeMalformed, "", "the document is not JSON: " + err.Error()}
}

func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "whole number that fits"
	case reflect.Slice:
		return "list"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Bool:
		return "boolean"
	}
	return t.Kind().String()
}

// unknownField returns the path of a name in raw that t does not have, or "": always the
// same one, since names are gone through in order.
func unknownField(t reflect.Type, raw any, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch raw := raw.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return ""
		}
		for i, v := range raw {
			if bad := unknownField(t.Elem(), v, fmt.Sprintf("%s[%d]", path, i)); bad != "" {
				return bad
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return ""
		}
		known := map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
				known[name] = f.Type
			}
		}
		for _, name := range slices.Sorted(maps.Keys(raw)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			field, ok := known[name]
			if !ok {
				return at
			}
			if bad := unknownField(field, raw[name], at); bad != "" {
				return bad
			}
		}
	}
	return ""
}
