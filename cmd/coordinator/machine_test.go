package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestWhatAFleetsProxiesAreIsChosenOnce(t *testing.T) {
	c := devCmd{Store: filepath.Join(t.TempDir(), "store"), Backend: "auto"}
	choose := func() string {
		t.Helper()
		b, err := c.choose(t.Context(), "here", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := choose()
	if first != "local" && first != "libvirt" {
		t.Fatalf("chose %q", first)
	}
	other := map[string]string{"local": "libvirt", "libvirt": "local"}[first]
	if err := os.WriteFile(filepath.Join(c.Store, "backend"), []byte(other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := choose(); again != other {
		t.Errorf("chose %q in a store that has %q", again, other)
	}
	c.Backend = first
	if asked := choose(); asked != first {
		t.Errorf("chose %q, was asked for %q", asked, first)
	}
}
