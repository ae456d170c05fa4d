package intents

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
		return "", refusal(err)
	}
	if bad := Label("name", doc.Name, max); bad != nil {
		return "", bad
	}
	return doc.Name, nil
}

// decode fills *into from data: names match by exact case, an unknown one and one that stands
// twice in an object are errors (RFC 8259, 4: readers differ about such documents, so what was
// checked would not be what is in force).
func decode(data []byte, into any) *Invalid {
	if len(data) > bus.MaxIntentBytes {
		return &Invalid{CodeTooLarge, "", fmt.Sprintf("the document has %d bytes; at most %d are allowed", len(data), bus.MaxIntentBytes)}
	}
	if !utf8.Valid(data) {
		return &Invalid{CodeMalformed, "", "the document is not UTF-8; user-data that is not text belongs into spec.cloudInitBase64"}
	}
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(true)); err != nil {
		return refusal(err)
	}
	return nil
}

// maxPath bounds what a refusal repeats of a document.
const maxPath = 200

// shortened also takes out what a terminal would act on instead of showing it.
func shortened(path string) string {
	path = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, path)
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath], "") + "…"
}

// refusal says what is wrong with a document, without its values.
func refusal(err error) *Invalid {
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return &Invalid{CodeMalformed, path(syntax.JSONPointer), "stands there twice"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Invalid{CodeMalformed, "", "the document breaks off"}
	case errors.As(err, &syntax):
		// The library's own text quotes what it stumbles over, which may be a password's.
		return &Invalid{CodeMalformed, "", fmt.Sprintf("the document is not JSON at byte %d", syntax.ByteOffset)}
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return &Invalid{CodeUnknown, path(semantic.JSONPointer), "there is no such field"}
	case errors.As(err, &semantic) && semantic.GoType != nil:
		return &Invalid{CodeMalformed, path(semantic.JSONPointer), "is " + jsonKind(semantic.JSONKind) + ", not " + wanted(semantic.GoType)}
	}
	return &Invalid{CodeMalformed, "", "the document is not JSON"}
}

// path is a JSON Pointer as people write it: "spec.zones[1]".
func path(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil && b.Len() > 0 {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	return shortened(b.String())
}

func jsonKind(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginArray:
		return "a list"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	}
	return "a " + k.String()
}

func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number that fits"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Bool:
		return "a boolean"
	}
	return "a " + t.Kind().String()
}
