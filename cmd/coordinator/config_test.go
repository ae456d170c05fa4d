package main

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

func TestTheSampleHasEveryOptionWithItsDefault(t *testing.T) {
	want, err := parseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseConfig(sample)
	if err != nil {
		t.Fatal(err)
	}
	got.NATS.URL = "" // the default that the client library has
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the sample differs from the defaults (-want +got):\n%s", diff)
	}
	all, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(all), "\n") {
		field, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if field != "" && !strings.Contains(string(sample), field+":") {
			t.Errorf("the sample lacks %s", field)
		}
	}
}

func TestAConfigurationIsReadStrictly(t *testing.T) {
	for name, c := range map[string]struct{ doc, want string }{
		"an unknown option":      {"nats:\n  ulr: x\n", "[2:3]"},
		"an installation's name": {"installation: mine\n", "installation"},
		"a lease of no length":   {"lease: 10ms\n", "lease"},
		"an impatient silence":   {"silence: 1s\n", "silence"},
		"a loss before silence":  {"lossDelay: -1s\n", "lossDelay"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseConfig([]byte(c.doc)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	if c, err := parseConfig([]byte("lease: 2s\n")); err != nil || c.Lease != 2*time.Second {
		t.Errorf("got %v, %v", c.Lease, err)
	}
}

func TestAMachineNameBecomesALabel(t *testing.T) {
	got, err := hostLabel()
	if err != nil || got == "" || strings.ContainsAny(got, "._ ") {
		t.Errorf("got %q, %v", got, err)
	}
}
