// Package internal holds no code of its own, only the rules that all packages keep.
package internal

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A layer says which packages of this module the packages below a path may import, beside
// each other. The longest path that matches a package counts.
type layer struct {
	path    string
	may     []string // paths; each allows what is below it as well
	because string
}

var layers = []layer{
	{"cmd/agent", []string{"internal/agent", "internal/backends", "internal/bus", "internal/program", "internal/secret"},
		"an agent is installed on hosts that have nothing to do with decisions"},
	{"cmd/coordinator", []string{"internal/coordinator", "internal/agent", "internal/backends", "internal/backends/local", "internal/bus", "internal/program", "internal/secret"},
		"the command dev is a whole fleet with an agent inside; below it coordinators and agents stay apart"},
	{"internal/agent", []string{"internal/backends", "internal/bus", "internal/secret"},
		"an agent must work while every coordinator is away, so it cannot need their code"},
	{"internal/coordinator", []string{"internal/bus", "internal/secret"},
		"what a backend can do reaches a coordinator as an offer, never as code: backends are added without a new coordinator"},
	{"internal/coordinator/fleettest", []string{"internal/bus", "internal/secret"},
		"it plays hosts and people, so that it tries a coordinator as they do"},
	{"internal/coordinator/core", []string{"internal/coordinator/intents", "internal/coordinator/placement", "internal/bus", "internal/secret"},
		"the core decides; nothing around it may leak in"},
	{"internal/coordinator/intents", []string{"internal/bus", "internal/secret"}, "judging a document needs nothing else"},
	{"internal/coordinator/placement", []string{"internal/bus", "internal/secret"}, "choosing a host needs nothing else"},
	{"internal/bus", []string{"internal/secret"},
		"documents and streams must not take the shape of one backend or one coordinator"},
	{"internal/backends", []string{"internal/secret"},
		"a backend must be usable, and tested, without NATS"},
	{"internal/program", nil, "what makes a program of packages knows none of them"},
	{"internal/secret", nil, "everything imports it"},
	{"schemas", nil, "what it holds is for everybody, so it needs nothing of ours"},
	{"e2e", []string{"internal/bus"}, "what the end-to-end tests look at is what an operator can look at"},
}

// The pure packages take time and randomness as inputs, so that a transcript of their
// inputs is a transcript of their outputs.
var pure = []string{"internal/coordinator/core", "internal/coordinator/intents", "internal/coordinator/placement"}

// What a pure package may not import, and which functions of "time" it may not call.
var (
	impureImports = []string{"net", "net/http", "os", "os/exec", "log", "log/slog", "sync", "math/rand", "math/rand/v2", "crypto/rand", "context", "github.com/nats-io/nats.go"}
	impureClock   = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
)

// pkg is the part of `go list -json` that the rules look at.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// packages lists the module's packages that have code besides tests, paths relative to it.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Module", "-tags", "real,guest", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			pkg
			Module struct{ Path string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
		for i, imp := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(imp, p.Module.Path+"/")
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p.pkg)
		}
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

func below(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// layerOf is the layer with the longest path that covers a package, nil where none does.
func layerOf(path string) (best *layer) {
	for i, l := range layers {
		if below(path, l.path) && (best == nil || len(l.path) > len(best.path)) {
			best = &layers[i]
		}
	}
	return best
}

// broken says which of a package's imports its layer forbids.
func broken(p pkg) (problems []string) {
	l := layerOf(p.ImportPath)
	if l == nil {
		return []string{"no layer covers it: say in this test what it may import, and why"}
	}
	for _, imp := range p.Imports {
		ours := below(imp, "internal") || below(imp, "cmd") || below(imp, "schemas") || below(imp, "e2e")
		allowed := below(imp, l.path) || slices.ContainsFunc(l.may, func(m string) bool { return below(imp, m) })
		if ours && !allowed {
			problems = append(problems, fmt.Sprintf("may not import %s: %s", imp, l.because))
		}
	}
	return problems
}

func TestImportsGoOneWay(t *testing.T) {
	for _, p := range packages(t) {
		for _, problem := range broken(p) {
			t.Errorf("%s %s", p.ImportPath, problem)
		}
	}
}

func TestTheRuleOfImportsSeesWhatItForbids(t *testing.T) {
	for _, p := range []pkg{
		{ImportPath: "internal/bus", Imports: []string{"internal/backends"}},
		{ImportPath: "internal/backends/local", Imports: []string{"internal/bus"}},
		{ImportPath: "internal/coordinator", Imports: []string{"internal/backends/libvirt"}},
		{ImportPath: "internal/coordinator/core", Imports: []string{"internal/coordinator"}},
		{ImportPath: "internal/agent", Imports: []string{"internal/coordinator/intents"}},
		{ImportPath: "internal/somethingnew"},
	} {
		if len(broken(p)) != 1 {
			t.Errorf("%s importing %v: got %q, want one problem", p.ImportPath, p.Imports, broken(p))
		}
	}
}

// What an agent carries is memory on every host.
func TestTheAgentOfAHostIsSmall(t *testing.T) {
	for tags, without := range map[string][]string{
		"":                     {"github.com/nats-io/nats-server"},
		"no_gcp,no_kubernetes": {"github.com/nats-io/nats-server", "k8s.io", "cloud.google.com"},
	} {
		out, err := exec.Command("go", "list", "-deps", "-tags", tags, "proxyfleet/cmd/agent").Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		deps := strings.Fields(string(out))
		if len(deps) < 100 {
			t.Fatalf("go list found %d packages only", len(deps))
		}
		for _, dep := range deps {
			for _, root := range without {
				if below(dep, root) {
					t.Errorf("an agent with the tags %q has %s", tags, dep)
				}
			}
		}
	}
}

// Shared packages of backends know no backend, and no backend knows another.
func TestBackendsDoNotKnowEachOther(t *testing.T) {
	concrete := []string{"local", "libvirt", "sim", "proxmox", "gcp", "kubernetes"}
	for _, p := range packages(t) {
		if !below(p.ImportPath, "internal/backends") {
			continue
		}
		for _, name := range concrete {
			backend := "internal/backends/" + name
			for _, imp := range p.Imports {
				if below(imp, backend) && !below(p.ImportPath, backend) {
					t.Errorf("%s may not import %s: what two backends need belongs beside them", p.ImportPath, imp)
				}
			}
		}
	}
}

// What starts servers and plants foreign things is for tests only.
func TestPackagesForTestsAreImportedByTestsAlone(t *testing.T) {
	forTests := regexp.MustCompile(`/[a-z0-9]*(test|fake)$`)
	seen := 0
	for _, p := range packages(t) {
		if forTests.MatchString(p.ImportPath) {
			seen++
			continue
		}
		for _, imp := range p.Imports {
			if below(imp, "internal") && forTests.MatchString(imp) {
				t.Errorf("%s may not import %s: it is for tests only", p.ImportPath, imp)
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d packages for tests were seen, want bustest, backendtest, libvirttest and pvefake at least", seen)
	}
}

func TestDecisionsArePure(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.Contains(pure, p.ImportPath) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(impureImports, imp) {
				t.Errorf("%s imports %s: clock, network, randomness and logs belong around it", p.ImportPath, imp)
			}
		}
		for _, f := range parsed(t, p, parser.SkipObjectResolution) {
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impureClock, sel.Sel.Name) {
						t.Errorf("%s calls time.%s: time is an input of a decision", p.ImportPath, sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		var docs []string
		name := ""
		for _, f := range parsed(t, p, parser.PackageClauseOnly|parser.ParseComments) {
			name = f.Name.Name
			if f.Doc != nil {
				docs = append(docs, f.Doc.Text())
			}
		}
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + filepath.Base(p.Dir) + " "
		}
		if len(docs) != 1 || !strings.HasPrefix(docs[0], want) {
			t.Errorf("%s has %d package comments, want one that begins with %q", p.ImportPath, len(docs), want)
		}
	}
}

func parsed(t *testing.T, p pkg, mode parser.Mode) (files []*ast.File) {
	t.Helper()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}
