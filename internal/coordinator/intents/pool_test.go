package intents

import (
	"strings"
	"testing"

	"proxyfleet/internal/bus"
)

const template = `"template":{` + open + `}`

func TestParsePoolRefuses(t *testing.T) {
	for name, c := range map[string]struct{ doc, code, field string }{
		"what is not JSON":                           {`{"name":`, CodeMalformed, ""},
		"an unknown field":                           {`{"name":"p","sise":1,` + template + `}`, CodeUnknown, "sise"},
		"an unknown field in the template":           {`{"name":"p","size":1,"template":{"prot":1}}`, CodeUnknown, "template.prot"},
		"a field of a proxy's intent":                {`{"name":"p","size":1,"spec":{},` + template + `}`, CodeUnknown, "spec"},
		"another document's type":                    {`{"type":"io.proxyfleet.intent.v1","name":"p","size":1,` + template + `}`, CodeInvalid, "type"},
		"no name":                                    {`{"size":1,` + template + `}`, CodeMissing, "name"},
		"a name that is not the subject's":           {`{"name":"q","size":1,` + template + `}`, CodeInvalid, "name"},
		"a name that leaves no room for numbers":     {`{"name":"` + strings.Repeat("p", 45) + `","size":1,` + template + `}`, CodeInvalid, "name"},
		"a pool that is to be stopped":               {`{"name":"p","desired":"stopped","size":1,` + template + `}`, CodeInvalid, "desired"},
		"a desired state that does not exist":        {`{"name":"p","desired":"gone","size":1,` + template + `}`, CodeInvalid, "desired"},
		"no size":                                    {`{"name":"p",` + template + `}`, CodeMissing, "size"},
		"a size and a max":                           {`{"name":"p","size":1,"max":2,` + template + `}`, CodeInvalid, "size"},
		"a negative size":                            {`{"name":"p","size":-1,` + template + `}`, CodeInvalid, "size"},
		"a size beyond the greatest":                 {`{"name":"p","size":10001,` + template + `}`, CodeInvalid, "size"},
		"a min beyond the max":                       {`{"name":"p","min":3,"max":2,` + template + `}`, CodeInvalid, "min"},
		"a max beyond the greatest":                  {`{"name":"p","max":10001,` + template + `}`, CodeInvalid, "max"},
		"a negative maxUnavailable":                  {`{"name":"p","size":1,"update":{"maxUnavailable":-1},` + template + `}`, CodeInvalid, "update.maxUnavailable"},
		"a negative surge":                           {`{"name":"p","size":1,"update":{"surge":-1},` + template + `}`, CodeInvalid, "update.surge"},
		"an update that could never move":            {`{"name":"p","size":1,"update":{"surge":0},` + template + `}`, CodeInvalid, "update.surge"},
		"an order of going that is none":             {`{"name":"p","size":1,"scaleDown":"random",` + template + `}`, CodeInvalid, "scaleDown"},
		"a rotation without an age":                  {`{"name":"p","size":1,"rotation":{},` + template + `}`, CodeInvalid, "rotation.maxAge"},
		"an age that is no duration":                 {`{"name":"p","size":1,"rotation":{"maxAge":"1 day"},` + template + `}`, CodeInvalid, "rotation.maxAge"},
		"an age that leaves no time to run":          {`{"name":"p","size":1,"rotation":{"maxAge":"59s"},` + template + `}`, CodeInvalid, "rotation.maxAge"},
		"a jitter that is most of the age":           {`{"name":"p","size":1,"rotation":{"maxAge":"1h","jitter":"31m"},` + template + `}`, CodeInvalid, "rotation.jitter"},
		"a negative bound on a host":                 {`{"name":"p","size":1,"spread":{"maxPerHost":-1},` + template + `}`, CodeInvalid, "spread.maxPerHost"},
		"a negative bound on a zone":                 {`{"name":"p","size":1,"spread":{"maxPerZone":-1},` + template + `}`, CodeInvalid, "spread.maxPerZone"},
		"more members on one host than may be there": {`{"name":"p","size":3,"spread":{"maxPerHost":2},"template":{` + open + `,"placement":{"host":"h"}}}`, CodeInvalid, "spread.maxPerHost"},
		"members open to everybody":                  {`{"name":"p","size":1}`, CodeMissing, "template"},
		"a template that is wrong":                   {`{"name":"p","size":1,"template":{"port":-1,` + open + `}}`, CodeInvalid, "template.port"},
		"a document over its limit":                  {`{"name":"p","x":"` + strings.Repeat("x", bus.MaxIntentBytes) + `"}`, CodeTooLarge, ""},
		"a document that grows as it is stored":      {`{"name":"p","size":1,"template":{"cloudInit":"` + strings.Repeat("<", 100<<10) + `",` + open + `}}`, CodeTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, bad := ParsePool("p", []byte(c.doc))
			if bad == nil {
				t.Fatal("accepted")
			}
			if bad.Code != c.code || bad.Field != c.field {
				t.Errorf("got %s at %q (%s), want %s at %q", bad.Code, bad.Field, bad.Message, c.code, c.field)
			}
		})
	}
}

func TestParsePoolFillsDefaults(t *testing.T) {
	got, bad := ParsePool("p", []byte(`{"name":"p","size":2,"rotation":{"maxAge":"20h"},`+template+`}`))
	if bad != nil {
		t.Fatal(bad)
	}
	maxAge, jitter, err := got.Rotation.Ages()
	if got.Type != bus.TypePool || got.Desired != bus.DesiredRunning || *got.Update.Surge != 1 || got.ScaleDown != "newest" ||
		maxAge.Hours() != 20 || jitter.Hours() != 2 || err != nil {
		t.Errorf("got %+v, rotated after %s less %s, %v", got, maxAge, jitter, err)
	}
	if low, high := got.Bounds(); low != 2 || high != 2 {
		t.Errorf("its size is between %d and %d", low, high)
	}
}

func TestAPoolMayHave(t *testing.T) {
	for name, doc := range map[string]string{
		"no member":                       `{"name":"p","size":0,` + template + `}`,
		"a size that requests set":        `{"name":"p","min":0,"max":3,` + template + `}`,
		"no surge if some may be missing": `{"name":"p","size":1,"update":{"surge":0,"maxUnavailable":1},` + template + `}`,
		"nothing at all when it goes":     `{"name":"p","desired":"absent"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, bad := ParsePool("p", []byte(doc)); bad != nil {
				t.Error(bad)
			}
		})
	}
}

// What was accepted once is accepted again, so that a ledger entry can be published anew.
func FuzzParsePool(f *testing.F) {
	f.Add(`{"name":"p","min":1,"max":2,` + template + `}`)
	f.Add(`{"name":"p","size":1,"rotation":{"maxAge":"1h","jitter":"0s"},` + template + `}`)
	f.Add(`{"name":"p","desired":"absent","size":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		doc, bad := ParsePool("p", []byte(text))
		if bad != nil || doc.Desired == bus.DesiredAbsent {
			return
		}
		again, bad := ParsePool("p", bus.Encode(doc))
		if bad != nil || string(bus.Encode(again)) != string(bus.Encode(doc)) {
			t.Errorf("what was accepted is not accepted again: %v", bad)
		}
		if _, _, err := doc.Rotation.Ages(); err != nil {
			t.Error(err)
		}
	})
}
