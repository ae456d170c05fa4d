package program

import "testing"

func TestAVersionIsASemanticOne(t *testing.T) {
	for of, want := range map[string]string{
		"v1.2.3": "1.2.3",
		"v0.0.0-20261130120000-0123456789ab+dirty": "0.0.0-20261130120000-0123456789ab+dirty",
		"(devel)": "0.0.0-devel",
		"":        "0.0.0-devel",
	} {
		if got := version(of); got != want {
			t.Errorf("%q: got %q, want %q", of, got, want)
		}
	}
}

func TestALogOfAnUnknownLevelIsRefused(t *testing.T) {
	if _, err := Logger("loud", "text"); err == nil {
		t.Error("it was accepted")
	}
}
