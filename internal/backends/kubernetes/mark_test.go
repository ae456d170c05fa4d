package kubernetes

import (
	"testing"

	"proxyfleet/internal/backends"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	want := record{Generation: 7, Desired: backends.Stopped, Fixed: "f", Config: "c", Port: 3128, Expose: exposeNodePort, Policy: true, Pool: "p"}
	if got, err := decodeRecord(want.encode()); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
}

func TestARecordThatSaysNothingUsableIsNoRecord(t *testing.T) {
	for _, text := range []string{"", "cut", "{}", "null", `{"desired":"absent","expose":"pod"}`, `{"desired":"running"}`,
		`{"desired":"running","expose":"host"}`, `{"desired":"running","expose":"pod","port":65536}`, `{"desired":"running","expose":"pod","generation":-1}`} {
		if r, err := decodeRecord(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, r)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(record{Generation: 1, Desired: backends.Running, Expose: exposePod, Port: DefaultPort}.encode())
	f.Add(`{"desired":"stopped","expose":"loadBalancer","policy":true,"later":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decodeRecord(text)
		if err != nil {
			return
		}
		if again, err := decodeRecord(r.encode()); err != nil || again != r {
			t.Errorf("%q: read again it is %+v (%v), want %+v", text, again, err, r)
		}
	})
}

func TestDigestsKeepTheBoundsOfTheirParts(t *testing.T) {
	if digest("ab", "c") == digest("a", "bc") || digest("a") == digest("a", "") {
		t.Error("different parts have one digest")
	}
}
