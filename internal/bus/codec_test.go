package bus_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proxyfleet/internal/bus"
)

func TestDecodeLeavesOutWhatItDoesNotKnow(t *testing.T) {
	got, err := bus.Decode[bus.Beat]([]byte(`{"hostId":"h","seq":7,"addedLater":{"x":[1]}}`))
	if err != nil || got.HostID != "h" || got.Seq != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestErrorsOfDecodingNameTheDocumentAndNoValue(t *testing.T) {
	const password = "hunter2"
	for what, text := range map[string]string{
		"cut off":                  `{"spec":{"auth":{"password":"` + password,
		"not JSON":                 password,
		"text after the document":  `{} ` + password,
		"a list for an object":     `["` + password + `"]`,
		"text for a number":        `{"generation":"` + password + `"}`,
		"text for an object":       `{"spec":"` + password + `"}`,
		"a number for the secret":  `{"spec":{"auth":{"password":1234567}}}`,
		"an object for the secret": `{"spec":{"auth":{"password":{"` + password + `":1}}}}`,
	} {
		_, err := bus.Decode[bus.Assignment]([]byte(text))
		if err == nil {
			t.Errorf("%s: accepted", what)
			continue
		}
		if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "1234567") {
			t.Errorf("%s: the error quotes the value: %v", what, err)
		}
		if !strings.Contains(err.Error(), "assignment") {
			t.Errorf("%s: the error names no document: %v", what, err)
		}
	}
	if _, err := bus.Decode[bus.Event]([]byte(`{"time":"` + password + `"}`)); err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("a time that is none: got %v", err)
	}
}

// fuzzDecode holds that no input panics, that no string of it shows in an error, and that
// what was read is written and read again as the same.
func fuzzDecode[T any](f *testing.F, kind string) {
	examples, err := filepath.Glob("../../schemas/examples/" + kind + "*.json")
	if err != nil || len(examples) == 0 {
		f.Fatalf("no examples of %s: %v", kind, err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{"", "null", "{}", "[]", `{"type":1}`, `{"spec":{"auth":{"password":"p"}}}`, "{\"uid\":\"\xff\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := bus.Decode[T](data)
		if err != nil {
			if !reflect.ValueOf(doc).IsZero() {
				t.Errorf("a document beside an error: %+v", doc)
			}
			return
		}
		again, err := bus.Decode[T](bus.Encode(doc))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if d := cmp.Diff(doc, again, cmpopts.EquateEmpty()); d != "" { // encoding leaves out empty lists
			t.Errorf("(-first +again):\n%s", d)
		}
	})
}

func FuzzDecodeIntent(f *testing.F)     { fuzzDecode[bus.Intent](f, "intent") }
func FuzzDecodeAssignment(f *testing.F) { fuzzDecode[bus.Assignment](f, "assignment") }
func FuzzDecodeState(f *testing.F)      { fuzzDecode[bus.State](f, "state") }
func FuzzDecodeHost(f *testing.F)       { fuzzDecode[bus.Host](f, "host") }
func FuzzDecodeBeat(f *testing.F)       { fuzzDecode[bus.Beat](f, "beat") }
func FuzzDecodeRecord(f *testing.F)     { fuzzDecode[bus.Record](f, "record") }
func FuzzDecodeLedger(f *testing.F)     { fuzzDecode[bus.Ledger](f, "ledger") }
func FuzzDecodeFence(f *testing.F)      { fuzzDecode[bus.Fence](f, "fence") }
func FuzzDecodeLease(f *testing.F)      { fuzzDecode[bus.LeaseDoc](f, "lease") }
