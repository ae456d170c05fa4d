package intents

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"proxyfleet/internal/bus"
)

const open = `"allowFrom":["10.0.0.0/8"]`

func TestParseRefuses(t *testing.T) {
	big := strings.Repeat("x", bus.MaxUserDataBytes+1)
	for name, c := range map[string]struct{ doc, code, field string }{
		"what is not JSON":                      {`{"name":`, CodeMalformed, ""},
		"a list":                                {`[]`, CodeMalformed, ""},
		"a second document":                     {`{"name":"a","spec":{` + open + `}} {}`, CodeMalformed, ""},
		"bytes that are not UTF-8":              {"{\"name\":\"\xff\"}", CodeMalformed, ""},
		"an unknown field":                      {`{"name":"a","colour":1}`, CodeUnknown, "colour"},
		"an unknown field deep inside":          {`{"name":"a","spec":{"placement":{"hots":"x"}}}`, CodeUnknown, "spec.placement.hots"},
		"a field in the wrong case":             {`{"name":"a","Spec":{}}`, CodeUnknown, "Spec"},
		"a name that stands twice":              {`{"name":"a","spec":{` + open + `},"spec":{}}`, CodeMalformed, "spec"},
		"a name that hides an unknown one":      {`{"name":"a","spec":{"hots":1},"spec":{` + open + `}}`, CodeUnknown, "spec.hots"},
		"a name that stands twice deep inside":  {`{"name":"a","spec":{"placement":{"zone":"a","zone":"b"},` + open + `}}`, CodeMalformed, "spec.placement.zone"},
		"an element of the wrong type":          {`{"name":"a","spec":{"zones":["a",1],` + open + `}}`, CodeMalformed, "spec.zones[1]"},
		"a label that stands twice":             {`{"name":"a","spec":{"placement":{"labels":{"r":"1","\u0072":"2"}},` + open + `}}`, CodeMalformed, "spec.placement.labels.r"},
		"a value of the wrong type":             {`{"name":"a","spec":{"port":"80"}}`, CodeMalformed, "spec.port"},
		"another document's type":               {`{"type":"io.proxyfleet.pool.v1","name":"a"}`, CodeInvalid, "type"},
		"no name":                               {`{"spec":{` + open + `}}`, CodeMissing, "name"},
		"a name that is not the subject's":      {`{"name":"b","spec":{` + open + `}}`, CodeInvalid, "name"},
		"a desired state that does not exist":   {`{"name":"a","desired":"gone"}`, CodeInvalid, "desired"},
		"a proxy open to everybody":             {`{"name":"a"}`, CodeMissing, "spec"},
		"a port beyond the last":                {`{"name":"a","spec":{"port":65536,` + open + `}}`, CodeInvalid, "spec.port"},
		"an empty password":                     {`{"name":"a","spec":{"auth":{"username":"u","password":""}}}`, CodeMissing, "spec.auth.password"},
		"a user name that is a comment":         {`{"name":"a","spec":{"auth":{"username":"#u","password":"p"}}}`, CodeInvalid, "spec.auth.username"},
		"a user name that ends with a space":    {`{"name":"a","spec":{"auth":{"username":"u ","password":"p"}}}`, CodeInvalid, "spec.auth.username"},
		"a user name with a colon":              {`{"name":"a","spec":{"auth":{"username":"u:v","password":"p"}}}`, CodeInvalid, "spec.auth.username"},
		"a password with a line end":            {`{"name":"a","spec":{"auth":{"username":"u","password":"p\n"}}}`, CodeInvalid, "spec.auth.password"},
		"an address for a network":              {`{"name":"a","spec":{"allowFrom":["10.0.0.1"]}}`, CodeInvalid, "spec.allowFrom[0]"},
		"a network with host bits":              {`{"name":"a","spec":{"allowFrom":["::/0","10.0.0.1/8"]}}`, CodeInvalid, "spec.allowFrom[1]"},
		"an image URL with credentials":         {`{"name":"a","spec":{"image":"https://u:p@h/x",` + open + `}}`, CodeInvalid, "spec.image"},
		"an image path":                         {`{"name":"a","spec":{"image":"../x",` + open + `}}`, CodeInvalid, "spec.image"},
		"a negative disk":                       {`{"name":"a","spec":{"diskGiB":-1,` + open + `}}`, CodeInvalid, "spec.diskGiB"},
		"a zone that is no label":               {`{"name":"a","spec":{"zones":["us-central1-a","US"],` + open + `}}`, CodeInvalid, "spec.zones[1]"},
		"an address of a third kind":            {`{"name":"a","spec":{"address":"both",` + open + `}}`, CodeInvalid, "spec.address"},
		"a CONNECT port of nought":              {`{"name":"a","spec":{"egress":{"connectPorts":[0]},` + open + `}}`, CodeInvalid, "spec.egress.connectPorts[0]"},
		"a name to keep from that is none":      {`{"name":"a","spec":{"placement":{"antiAffinity":["crawl-*","*"]},` + open + `}}`, CodeMissing, "spec.placement.antiAffinity[1]"},
		"a preferred zone that is no label":     {`{"name":"a","spec":{"placement":{"prefer":{"zone":"E U"}},` + open + `}}`, CodeInvalid, "spec.placement.prefer.zone"},
		"a preferred label without a key":       {`{"name":"a","spec":{"placement":{"prefer":{"labels":{"":"x"}}},` + open + `}}`, CodeInvalid, "spec.placement.prefer.labels"},
		"a host given with its domain":          {`{"name":"a","spec":{"placement":{"host":"kvm1.example.org"},` + open + `}}`, CodeInvalid, "spec.placement.host"},
		"two kinds of user-data":                {`{"name":"a","spec":{"cloudInit":"x","cloudInitBase64":"eA==",` + open + `}}`, CodeInvalid, "spec.cloudInitBase64"},
		"user-data that is not base64":          {`{"name":"a","spec":{"cloudInitBase64":"?",` + open + `}}`, CodeInvalid, "spec.cloudInitBase64"},
		"user-data over its limit":              {`{"name":"a","spec":{"cloudInit":"` + big + `",` + open + `}}`, CodeTooLarge, "spec.cloudInit"},
		"a document over its limit":             {`{"name":"a","spec":{"cloudInit":"` + big + big + `"}}`, CodeTooLarge, ""},
		"a document that grows as it is stored": {`{"name":"a","spec":{"cloudInit":"` + strings.Repeat("<", 100<<10) + `",` + open + `}}`, CodeTooLarge, ""},
		"an unknown field without end":          {`{"name":"a","` + strings.Repeat("x", 1000) + `":1}`, CodeUnknown, strings.Repeat("x", 200) + "…"},
		"binary user-data over its limit":       {`{"name":"a","spec":{"cloudInitBase64":"` + base64.StdEncoding.EncodeToString([]byte(big)) + `",` + open + `}}`, CodeTooLarge, "spec.cloudInitBase64"},
		"a policy on host loss that is no one":  {`{"name":"a","spec":{"onHostLoss":"move",` + open + `}}`, CodeInvalid, "spec.onHostLoss"},
	} {
		t.Run(name, func(t *testing.T) {
			_, bad := Parse("a", []byte(c.doc))
			if bad == nil {
				t.Fatal("accepted")
			}
			if bad.Code != c.code || bad.Field != c.field {
				t.Errorf("got %s at %q (%s), want %s at %q", bad.Code, bad.Field, bad.Message, c.code, c.field)
			}
		})
	}
}

func TestParseFillsDefaults(t *testing.T) {
	got, bad := Parse("a", []byte(`{"name":"a","spec":{`+open+`}}`))
	if bad != nil || got.Desired != bus.DesiredRunning || got.Type != bus.TypeIntent {
		t.Errorf("got %v, %v", got, bad)
	}
}

func TestOneNameMayStandInSeveralObjects(t *testing.T) {
	if _, bad := Parse("a", []byte(`{"name":"a","spec":{`+open+`,"placement":{"labels":{"name":"x","spec":"y","zone":"z"},"zone":"z"}}}`)); bad != nil {
		t.Error(bad)
	}
}

func TestAnAbsentProxyNeedsNoSpec(t *testing.T) {
	if _, bad := Parse("a", []byte(`{"name":"a","desired":"absent"}`)); bad != nil {
		t.Error(bad)
	}
}

func TestEveryPrintableCharacterMayStandInAPassword(t *testing.T) {
	var all []byte
	for c := byte(' '); c <= '~'; c++ {
		all = append(all, c)
	}
	pw, _ := json.Marshal(string(all))
	got, bad := Parse("a", []byte(`{"name":"a","spec":{"auth":{"username":"u","password":`+string(pw)+`}}}`))
	if bad != nil || got.Spec.Auth.Password.Reveal() != string(all) {
		t.Error("changed or refused", bad)
	}
}

// What a decoder stumbles over may stand in a password.
func TestARefusalRepeatsNothingOfAString(t *testing.T) {
	for _, broken := range []string{`\ud800Topsec`, `\uTopsec`, `\Topsec`, "Topsec\n", `" Topsec`} {
		_, bad := Parse("a", []byte(`{"name":"a","spec":{"auth":{"username":"u","password":"`+broken+`"}}}`))
		if bad == nil || strings.ContainsAny(bad.Error(), `T\`) {
			t.Errorf("%q: %v", broken, bad)
		}
	}
}

func TestAFieldsNameHasNothingThatATerminalActsOn(t *testing.T) {
	_, bad := Parse("a", []byte(`{"name":"a","x\u202e\r\u001by":1}`))
	if bad == nil || bad.Code != CodeUnknown || bad.Field != "x\ufffd\ufffd\ufffdy" {
		t.Errorf("got %+v", bad)
	}
}

// No refusal may repeat a password, whatever is wrong with the document around it.
func FuzzParse(f *testing.F) {
	f.Add(`{"name":"a","spec":{"auth":{"username":"u","password":"`, `"}}}`)
	f.Add(`{"name":"a","spec":{"auth":{"username":"u","password":"`, `"},"port":"x"}}`)
	f.Add(`{"name":"a","spec":{"auth":"`, `"}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		const pw = "hunter2-correct-horse"
		doc, bad := Parse("a", []byte(before+pw+after))
		if bad != nil {
			// A field's own name is repeated, so the password must not have become one.
			if strings.Contains(bad.Message, pw) {
				t.Errorf("the message repeats the password: %s", bad)
			}
			return
		}
		if doc.Desired == bus.DesiredAbsent {
			return
		}
		if again, bad := Parse("a", bus.Encode(doc)); bad != nil || string(bus.Encode(again)) != string(bus.Encode(doc)) {
			t.Errorf("what was accepted is not accepted again: %v", bad)
		}
	})
}

func TestAWrongTypeIsSaidInWords(t *testing.T) {
	for doc, want := range map[string]string{
		`[]`:                              "is a list, not an object",
		`{"name":"a","spec":[]}`:          "is a list, not an object",
		`{"name":{}}`:                     "is an object, not a string",
		`{"name":"a","spec":{"port":""}}`: "is a string, not a whole number that fits",
	} {
		if _, bad := Parse("a", []byte(doc)); bad == nil || bad.Message != want {
			t.Errorf("%s: got %v, want %q", doc, bad, want)
		}
	}
}
