package gcp

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTheRoleInTheDocumentationIsWhatTheCheckAsksFor(t *testing.T) {
	text, err := os.ReadFile("../../../docs/gcp.md")
	if err != nil {
		t.Fatal(err)
	}
	var role []string
	for _, m := range regexp.MustCompile(`(?m)^ *- (compute\.[a-zA-Z.]+)$`).FindAllStringSubmatch(string(text), -1) {
		role = append(role, m[1])
	}
	b := &Backend{conf: Config{}.withDefaults()}
	if want := b.permissions()[b.conf.Project]; !slices.Equal(role, want) {
		t.Errorf("docs/gcp.md has the role\n%v\nand the check asks for\n%v", role, want)
	}
	b.conf.ReservedAddress, b.conf.Address, b.conf.ServiceAccount.Email = true, internal, "robot@example.org"
	for _, p := range b.permissions()[b.conf.Project] {
		short := "`" + p[strings.LastIndex(p, "."):] + "`"
		if !slices.Contains(role, p) && !strings.Contains(string(text), "`"+p+"`") && !strings.Contains(string(text), short) && !strings.HasPrefix(p, "iam.") {
			t.Errorf("docs/gcp.md does not say what needs %s", p)
		}
	}
}
