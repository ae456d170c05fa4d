package schemas_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"proxyfleet/internal/bus"
	"proxyfleet/schemas"
)

var update = flag.Bool("update", false, "write the schemas anew")

// documents are all kinds of them, by the value of their "type".
var documents = map[string]any{
	bus.TypeIntent:     bus.Intent{},
	bus.TypePool:       bus.PoolIntent{},
	bus.TypePoolRecord: bus.PoolRecord{},
	bus.TypePoolLedger: bus.PoolLedger{},
	bus.TypeAssignment: bus.Assignment{},
	bus.TypeState:      bus.State{},
	bus.TypeHost:       bus.Host{},
	bus.TypeBeat:       bus.Beat{},
	bus.TypeRecord:     bus.Record{},
	bus.TypeHostRecord: bus.HostRecord{},
	bus.TypeEndpoint:   bus.Endpoint{},
	bus.TypeEvent:      bus.Event{},
	bus.TypeLedger:     bus.Ledger{},
	bus.TypeFence:      bus.Fence{},
	bus.TypeLease:      bus.LeaseDoc{},
}

// published are those that people write: each with its field that says how a proxy should be.
var published = map[string]string{bus.TypeIntent: "spec", bus.TypePool: "template"}

const prefix = "io.proxyfleet."

var goLink = regexp.MustCompile(`\[([A-Z][\w.]*)\]`)

func file(typ string) string { return strings.TrimPrefix(typ, prefix) + ".json" }

// generate makes the schema of one document.
func generate(t *testing.T, typ string, doc any) []byte {
	t.Helper()
	r := &jsonschema.Reflector{
		Anonymous:                 true,
		ExpandedStruct:            true,
		AllowAdditionalProperties: published[typ] == "",
	}
	// The path is joined to this package's, which makes it the import path of the types.
	if err := r.AddGoComments("proxyfleet/schemas", "../internal/bus", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	for k, v := range r.CommentMap { // one line, without links of Go's own
		r.CommentMap[k] = goLink.ReplaceAllString(strings.ReplaceAll(v, "\n", " "), "$1")
	}
	s := r.Reflect(doc)
	s.ID = jsonschema.ID("urn:proxyfleet:" + strings.TrimPrefix(typ, prefix))
	s.Title = typ
	if p, ok := s.Properties.Get("type"); ok {
		*p = jsonschema.Schema{Const: typ, Description: p.Description}
	} else {
		t.Fatalf("%s has no field type", typ)
	}
	if spec := published[typ]; spec != "" {
		closed(s, spec)
	}
	if typ == bus.TypePool {
		s.Else.OneOf = []*jsonschema.Schema{
			{Required: []string{"size"}, Not: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Required: []string{"min"}}, {Required: []string{"max"}}}}},
			{Required: []string{"max"}, Not: &jsonschema.Schema{Required: []string{"size"}}},
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// closed adds the one rule of an intent that no field has alone: what is not to be absent
// needs a spec with credentials or client networks.
func closed(s *jsonschema.Schema, spec string) {
	absent := jsonschema.NewProperties()
	absent.Set("desired", &jsonschema.Schema{Const: "absent"})
	access := jsonschema.NewProperties()
	access.Set(spec, &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Required: []string{"auth"}}, {Required: []string{"allowFrom"}}}})
	s.If = &jsonschema.Schema{Properties: absent, Required: []string{"desired"}}
	s.Else = &jsonschema.Schema{Properties: access, Required: []string{spec}}
}

func TestSchemasAgreeWithTheGoTypes(t *testing.T) {
	want := map[string]bool{}
	for typ, doc := range documents {
		name := file(typ)
		want[name] = true
		text := generate(t, typ, doc)
		if *update {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := fs.ReadFile(schemas.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(text), string(got)); d != "" {
			t.Errorf("%s does not agree with its type (-type +file); go test ./schemas -update writes it anew:\n%s", name, d)
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".json" && !want[e.Name()] {
			t.Errorf("%s is of no known type", e.Name())
		}
	}
}

func compile(t *testing.T, name string) *validator.Schema {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, s *validator.Schema, text []byte) error {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// Each example is valid, names its type, and has no field that its Go type lacks.
func TestExamplesAreValidAndKnownToTheGoTypes(t *testing.T) {
	seen := map[string]bool{}
	files, err := filepath.Glob("examples/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var head struct{ Type string }
		if err := json.Unmarshal(text, &head); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if head.Type == "" {
			head.Type = bus.TypeIntent // people may leave it out
		}
		doc, ok := documents[head.Type]
		if !ok {
			t.Errorf("%s: unknown type %q", f, head.Type)
			continue
		}
		seen[head.Type] = true
		if err := check(t, compile(t, file(head.Type)), text); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		into := reflect.New(reflect.TypeOf(doc))
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into.Interface()); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	for typ := range documents {
		if !seen[typ] {
			t.Errorf("no example of %s", typ)
		}
	}
}

// What Go writes with every field set is valid.
func TestWhatGoWritesIsValid(t *testing.T) {
	for typ, doc := range documents {
		full := reflect.New(reflect.TypeOf(doc)).Elem()
		fill(full, "")
		full.FieldByName("Type").SetString(typ)
		if p, ok := full.Addr().Interface().(*bus.PoolIntent); ok {
			p.Size = nil // never beside min and max
		}
		s := compile(t, file(typ))
		if err := check(t, s, bus.Encode(full.Interface())); err != nil {
			t.Errorf("%s with every field: %v", typ, err)
		}
	}
}

// fill sets every field to a value that its meaning allows.
func fill(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.String:
		text := map[string]string{"Desired": "running", "Address": "internal", "OnHostLoss": "wait", "Family": "ipv4", "Status": "True",
			"MaxAge": "24h", "Jitter": "90m", "ScaleDown": "oldest"}[field]
		if text == "" {
			text = "x"
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	default:
		panic(fmt.Sprintf("field %s of kind %v", field, v.Kind()))
	}
}

func TestTheIntentsSchemaRefusesWhatTheCoordinatorWould(t *testing.T) {
	s := compile(t, file(bus.TypeIntent))
	for what, text := range map[string]string{
		"an unknown field":             `{"name":"p","spec":{"allowFrom":["10.0.0.0/8"],"prot":1}}`,
		"an unknown field at the top":  `{"name":"p","specs":{},"spec":{"allowFrom":["10.0.0.0/8"]}}`,
		"no name":                      `{"spec":{"allowFrom":["10.0.0.0/8"]}}`,
		"a name that is no DNS label":  `{"name":"P_1","spec":{"allowFrom":["10.0.0.0/8"]}}`,
		"a name that is too long":      `{"name":"` + strings.Repeat("p", 53) + `","spec":{"allowFrom":["10.0.0.0/8"]}}`,
		"no access rule":               `{"name":"p","spec":{"port":3128}}`,
		"no spec":                      `{"name":"p","desired":"running"}`,
		"a port out of range":          `{"name":"p","spec":{"allowFrom":["10.0.0.0/8"],"port":65536}}`,
		"a port that is a string":      `{"name":"p","spec":{"allowFrom":["10.0.0.0/8"],"port":"3128"}}`,
		"a wish that is none":          `{"name":"p","desired":"deleted","spec":{"allowFrom":["10.0.0.0/8"]}}`,
		"a colon in a user's name":     `{"name":"p","spec":{"auth":{"username":"a:b","password":"x"}}}`,
		"an empty password":            `{"name":"p","spec":{"auth":{"username":"a","password":""}}}`,
		"a password that is not ASCII": `{"name":"p","spec":{"auth":{"username":"a","password":"ü"}}}`,
		"another document's type":      `{"type":"io.proxyfleet.state.v1","name":"p","spec":{"allowFrom":["10.0.0.0/8"]}}`,
	} {
		if check(t, s, []byte(text)) == nil {
			t.Errorf("%s is valid: %s", what, text)
		}
	}
	for what, text := range map[string]string{
		"absence without a spec":                   `{"name":"p","desired":"absent"}`,
		"client networks alone":                    `{"name":"p","spec":{"allowFrom":["10.0.0.0/8"]}}`,
		"credentials alone, any printable of them": `{"name":"p","spec":{"auth":{"username":"a b","password":" !\"#$%&'()*+,-./:;<=>?@[\\]^_` + "`" + `{|}~"}}}`,
	} {
		if err := check(t, s, []byte(text)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestThePoolsSchemaRefusesWhatTheCoordinatorWould(t *testing.T) {
	s := compile(t, file(bus.TypePool))
	const template = `"template":{"allowFrom":["10.0.0.0/8"]}`
	for what, text := range map[string]string{
		"an unknown field":               `{"name":"p","size":1,"sise":1,` + template + `}`,
		"an unknown field in the update": `{"name":"p","size":1,"update":{"max":1},` + template + `}`,
		"no size":                        `{"name":"p",` + template + `}`,
		"a min without a max":            `{"name":"p","min":1,` + template + `}`,
		"a size beside a max":            `{"name":"p","size":1,"max":2,` + template + `}`,
		"a size beyond the greatest":     `{"name":"p","size":10001,` + template + `}`,
		"a name that leaves no numbers":  `{"name":"` + strings.Repeat("p", 45) + `","size":1,` + template + `}`,
		"no template":                    `{"name":"p","size":1}`,
		"a template without access rule": `{"name":"p","size":1,"template":{"port":3128}}`,
		"a pool that is to be stopped":   `{"name":"p","desired":"stopped","size":1,` + template + `}`,
		"an age that is no duration":     `{"name":"p","size":1,"rotation":{"maxAge":"1 day"},` + template + `}`,
		"an order that is none":          `{"name":"p","size":1,"scaleDown":"random",` + template + `}`,
		"a negative surge":               `{"name":"p","size":1,"update":{"surge":-1},` + template + `}`,
		"a bound below nought on a host": `{"name":"p","size":1,"spread":{"maxPerHost":-1},` + template + `}`,
		"another document's type":        `{"type":"io.proxyfleet.intent.v1","name":"p","size":1,` + template + `}`,
	} {
		if check(t, s, []byte(text)) == nil {
			t.Errorf("%s is valid: %s", what, text)
		}
	}
	for what, text := range map[string]string{
		"absence alone":     `{"name":"p","desired":"absent"}`,
		"a size of nought":  `{"name":"p","size":0,` + template + `}`,
		"a max without min": `{"name":"p","max":3,` + template + `}`,
	} {
		if err := check(t, s, []byte(text)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Readers leave out what they do not know, so the other schemas do as well.
func TestOtherDocumentsMayHaveMoreFields(t *testing.T) {
	for typ, doc := range documents {
		if published[typ] != "" {
			continue
		}
		full := reflect.New(reflect.TypeOf(doc)).Elem()
		fill(full, "")
		full.FieldByName("Type").SetString(typ)
		var more map[string]any
		if err := json.Unmarshal(bus.Encode(full.Interface()), &more); err != nil {
			t.Fatal(err)
		}
		more["addedLater"] = 1
		text, err := json.Marshal(more)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(t, compile(t, file(typ)), text); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func TestTheFieldsOfAnIntentAreDescribed(t *testing.T) {
	text, err := fs.ReadFile(schemas.Files, file(bus.TypeIntent))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "client networks in CIDR form") {
		t.Error("the comments of the Go types are not in the schema")
	}
}
