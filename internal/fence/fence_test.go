package fence

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of this module.
const module = "github.com/ashore-mesh/ashore"

// programs is the level of what nothing imports.
const programs = 70

// levels are the module's packages; "/..." stands for everything below too. The
// first match counts. Programs are at the top and import what they need.
func levels() []struct {
	level    int
	packages []string
} {
	return []struct {
		level    int
		packages []string
	}{
		{40, []string{"internal/settings"}},
		{50, []string{"internal/adminapi"}},
		{60, []string{"internal/server"}},
		{programs, []string{"internal/e2e/harness"}},
		{0, []string{"internal/..."}},
		{10, []string{"config", "config/storage", "registry", "xds/envoytypes"}},
		{15, []string{"xds/resource"}},
		{20, []string{"push", "xds/ads"}},
		{29, []string{"registry/kube"}},
		{30, []string{"analyze", "filestore", "filestore/bolt", "filestore/consul", "mcp", "registry/entry",
			"registry/consul", "registry/shared", "registry/kube/crd", "registry/kube/services", "registry/vip", "ca/...",
			"agent/intercept", "agent/dns", "agent/metrics", "agent/probe", "agent/relay", "agent/envoy", "xds/gen/envoy"}},
		{31, []string{"registry/kube/identity", "xds/gen/destination", "xds/gen/workload", "xds/gen/access", "xds/gen/telemetry",
			"xds/gen/patch"}},
		{32, []string{"xds/authz", "xds/gen/endpoint", "xds/gen/secret", "xds/gen/layout"}},
		{33, []string{"xds/gen/cluster", "xds/gen/route", "xds/gen/listener", "xds/gen/agent"}},
		{34, []string{"xds/gen"}},
		{40, []string{"xds", "webhook", "agent"}},
		{50, []string{"agent/host"}},
		{programs, []string{"cmd/...", "examples/...", "bench/...", "tools/..."}},
	}
}

// importFence keeps a library in the packages that are made for it; all others do without.
type importFence struct {
	library string
	allowed []string
}

func importFences() []importFence {
	return []importFence{
		{"github.com/envoyproxy/go-control-plane", []string{"xds", "xds/ads", "xds/authz", "xds/envoytypes", "xds/gen/...", "agent/...", "mcp", "bench/..."}},
		{"k8s.io", []string{"registry/kube/...", "bench/..."}},
		{"github.com/hashicorp/consul/api", []string{"registry/consul", "filestore/consul"}},
		{"github.com/miekg/dns", []string{"agent/dns", "agent/intercept"}},
		{"go.etcd.io/bbolt", []string{"filestore/bolt"}},
	}
}

// pureFence names what the pure middle does without.
type pureFence struct {
	pkg string
	// except are files that the rules about statements do not hold for.
	except []string
	// imports that are not allowed.
	imports []string
	// variables of the package are allowed.
	variables bool
}

func pureFences() []pureFence {
	io := []string{"os", "net", "net/http", "log", "log/slog", "github.com/hashicorp/go-hclog",
		"github.com/prometheus/client_golang"}
	return []pureFence{
		{pkg: "push", except: []string{"assembler.go", "requests.go"}, imports: io},
		{pkg: "xds/gen/...", imports: append(slices.Clone(io), "sync", "sync/atomic")},
		{pkg: "xds/ads", imports: io, variables: true},
		{pkg: "xds/resource", imports: io, variables: true},
	}
}

// file is one source file that is not a test.
type file struct {
	pkg, name string
	ast       *ast.File
	fset      *token.FileSet
}

func (f file) at(p token.Pos) string {
	return fmt.Sprintf("%s/%s:%d", f.pkg, f.name, f.fset.Position(p).Line)
}

// imports yields the paths that f imports.
func (f file) imports() map[string]token.Pos {
	out := map[string]token.Pos{}
	for _, i := range f.ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			out[p] = i.Pos()
		}
	}
	return out
}

// sources parses every file of the module that is not a test.
func sources(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	fset := token.NewFileSet()
	var out []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && skipFolder(p, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		out = append(out, file{filepath.ToSlash(rel), d.Name(), parsed, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d source files below %s: the walk misses the module", len(out), root)
	}
	return out
}

// skipFolder says that a folder is not of this module: hidden, test data, or a module of its own.
func skipFolder(p, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return true
	}
	_, err := os.Stat(filepath.Join(p, "go.mod"))
	return err == nil
}

// within says whether pkg is one of patterns.
func within(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if folder, all := strings.CutSuffix(p, "/..."); all {
			return pkg == folder || strings.HasPrefix(pkg, folder+"/")
		}
		return pkg == p
	})
}

func levelOf(pkg string) (int, bool) {
	for _, l := range levels() {
		if within(pkg, l.packages) {
			return l.level, true
		}
	}
	return 0, false
}

// forTests says that a package is support for tests.
func forTests(pkg string) bool {
	return strings.HasSuffix(pkg, "test") || pkg == "internal/testlog"
}

// Arrows only point down.
func TestLevels(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if forTests(f.pkg) {
			continue
		}
		level, known := levelOf(f.pkg)
		if !known {
			t.Errorf("%s: package %s has no level: give it one in this test and in the architecture page",
				f.at(f.ast.Package), f.pkg)
			continue
		}
		for p, pos := range f.imports() {
			dep, ours := strings.CutPrefix(p, module+"/")
			if !ours || dep == f.pkg {
				continue
			}
			if forTests(dep) {
				t.Errorf("%s: %s is for tests and is imported by the product", f.at(pos), dep)
				continue
			}
			below, _ := levelOf(dep)
			inside := level == 0 || level == programs || within(dep, []string{path.Dir(f.pkg)}) && level == below
			if below > level || below == level && !inside {
				t.Errorf("%s: %s (level %d) imports %s (level %d): arrows only point down", f.at(pos), f.pkg, level,
					dep, below)
			}
		}
	}
}

// A library stays in the packages that are made for it.
func TestLibraries(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if forTests(f.pkg) {
			continue
		}
		for p, pos := range f.imports() {
			for _, fence := range importFences() {
				if (p == fence.library || strings.HasPrefix(p, fence.library+"/")) && !within(f.pkg, fence.allowed) {
					t.Errorf("%s: %s imports %s, which only %s may", f.at(pos), f.pkg, p,
						strings.Join(fence.allowed, ", "))
				}
			}
		}
	}
}

// The pure middle has no I/O, logger, clock, goroutine or variable of its own.
func TestPure(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		for _, fence := range pureFences() {
			if within(f.pkg, []string{fence.pkg}) && !forTests(f.pkg) {
				checkPure(t, f, fence)
			}
		}
	}
}

func checkPure(t *testing.T, f file, fence pureFence) {
	t.Helper()
	for p, pos := range f.imports() {
		if slices.ContainsFunc(fence.imports, func(bad string) bool {
			return p == bad ||
				strings.HasPrefix(p, bad+"/") && bad != "net"
		}) {
			t.Errorf("%s: %s imports %s: the pure middle does without", f.at(pos), f.pkg, p)
		}
	}
	if slices.Contains(fence.except, f.name) {
		return
	}
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !fence.variables {
			checkVariables(t, f, g)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: the pure middle starts no goroutine", f.at(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" &&
				slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep", "NewTimer", "NewTicker",
					"AfterFunc"}, n.Sel.Name) {
				t.Errorf("%s: time.%s: the pure middle has no clock", f.at(n.Pos()), n.Sel.Name)
			}
		}
		return true
	})
}

// checkVariables allows sentinel errors and compile-time checks only.
func checkVariables(t *testing.T, f file, g *ast.GenDecl) {
	t.Helper()
	for _, s := range g.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range v.Names {
			if name.Name != "_" && (i >= len(v.Values) || !isSentinel(v.Values[i])) {
				t.Errorf("%s: package variable %s: the pure middle has none but sentinel errors", f.at(name.Pos()),
					name.Name)
			}
		}
	}
}

func isSentinel(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "errors" && sel.Sel.Name == "New"
}

// Every package has its package comment in doc.go (a program in any file). None runs code when it
// is imported, except generated code, which registers protobufs.
func TestHouseRules(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, f := range sources(t) {
		place := f.name == "doc.go" || f.ast.Name.Name == "main"
		documented[f.pkg] = documented[f.pkg] || place && f.ast.Doc != nil
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !ast.IsGenerated(f.ast) {
				t.Errorf("%s: func init: importing a package runs nothing", f.at(fn.Pos()))
			}
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc.go with a package comment", pkg)
		}
	}
}
