package checks

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"

	"github.com/seed-782fa212/limbo/checks/internal/modules"
)

const module = "github.com/seed-782fa212/limbo"

// illustrated are the packages with a runnable example for each exported type, and the tools in
// them: types and functions that have one of their own, or "" for the package.
var illustrated = map[string][]string{
	"calls":                 {"Table"},
	"cron":                  {"Parse", "Every"},
	"delayqueue":            {"Queue"},
	"histogram":             {"Durations"},
	"longpoll":              {"Wait", "WaitGoals", "Polls"},
	"purgatory":             {"Purgatory", "Threshold", "Futures", "NewClock"},
	"timingwheel":           {"Wheel"},
	"timingwheel/keyed":     {"Table"},
	"timingwheel/scheduler": {"Scheduler", "Job", "Call"},
	"durable":               {"", "Timers", "Schedule", "Fired"},
	"durable/memstore":      {"New"},
	"durable/webhook":       {"", "Encode", "Sign"},
	"durable/console":       {""},
	"durable/timerd/client": {"Client"},
	"observe":               {"", "Registry", "NewHandler", "NewServer"},
}

// load loads packages with the types of their tests.
func load(t *testing.T, tests bool, patterns ...string) []*packages.Package {
	t.Helper()
	mode := packages.NeedName | packages.NeedFiles | packages.NeedSyntax
	if tests {
		mode |= packages.NeedForTest | packages.NeedImports | packages.NeedTypes | packages.NeedTypesInfo
	}
	loaded, err := packages.Load(&packages.Config{Mode: mode, Tests: tests, Dir: ".."}, patterns...)
	require.NoError(t, err)
	for _, p := range loaded {
		require.Empty(t, p.Errors, p.ID)
	}
	return loaded
}

// published returns the modules that others can require, as patterns.
func published(t *testing.T) (patterns []string) {
	t.Helper()
	dirs, err := modules.Dirs("..")
	require.NoError(t, err)
	for _, dir := range dirs {
		if modules.Published(dir) {
			patterns = append(patterns, path.Join(module, dir, "..."))
		}
	}
	return patterns
}

// ours loads the packages of the published modules, without their tests.
func ours(t *testing.T) []*packages.Package {
	t.Helper()
	all := load(t, false, published(t)...)
	require.Greater(t, len(all), 25)
	return all
}

// documentation returns the documentation of a package. It changes the syntax.
func documentation(t *testing.T, p *packages.Package) *doc.Package {
	t.Helper()
	d, err := doc.NewFromFiles(p.Fset, p.Syntax, p.PkgPath)
	require.NoError(t, err, p.PkgPath)
	return d
}

// Every exported constant, variable, function, type and method has a comment.
func TestExportedNamesAreDocumented(t *testing.T) {
	t.Parallel()
	count := 0
	for _, p := range ours(t) {
		if strings.Contains(p.PkgPath, "/internal/") {
			continue
		}
		n, missing := undocumented(documentation(t, p))
		count += n
		for _, name := range missing {
			t.Errorf("%s.%s has no comment", p.PkgPath, name)
		}
	}
	require.Greater(t, count, 500)
}

// undocumented returns the number of exported names of a package, and those without a comment.
// A comment of a group counts for its constants or variables, as does one at the end of a line.
func undocumented(d *doc.Package) (count int, missing []string) {
	check := func(name, comment string) {
		if count++; strings.TrimSpace(comment) == "" {
			missing = append(missing, name)
		}
	}
	values := func(groups []*doc.Value) {
		for _, g := range groups {
			for _, s := range g.Decl.Specs {
				spec := s.(*ast.ValueSpec)
				for _, name := range spec.Names {
					if name.IsExported() {
						check(name.Name, g.Doc+spec.Doc.Text()+spec.Comment.Text())
					}
				}
			}
		}
	}
	functions := func(receiver string, list []*doc.Func) {
		for _, f := range list {
			// These two are what package fmt and errors say they are.
			if receiver != "" && (f.Name == "String" || f.Name == "Error" || f.Name == "Unwrap") {
				continue
			}
			check(receiver+f.Name, f.Doc)
		}
	}
	values(d.Consts)
	values(d.Vars)
	functions("", d.Funcs)
	for _, t := range d.Types {
		check(t.Name, t.Doc)
		values(t.Consts)
		values(t.Vars)
		functions("", t.Funcs)
		functions(t.Name+".", t.Methods)
	}
	return count, missing
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	const source = `// Package p is a test.
package p

// A and B have the comment of their group.
const (
	A = iota
	B
)

const (
	C = 1 // c has one of its own
	D = 2
	e = 3
)

var V int

type T struct{}

func (T) M() {}

func (T) String() string { return "" }

// N has a comment.
func (T) N() {}

func NewT() T { return T{} }

type u struct{}

func (u) M() {}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	require.NoError(t, err)
	d, err := doc.NewFromFiles(fset, []*ast.File{file}, "p")
	require.NoError(t, err)
	count, missing := undocumented(d)
	require.Equal(t, 9, count)
	require.ElementsMatch(t, []string{"D", "V", "T", "T.M", "NewT"}, missing)
}

// The first sentence of a package's comment, which lists of packages show, begins with the
// package's name and is complete.
func TestSynopses(t *testing.T) {
	t.Parallel()
	for _, p := range load(t, false, "work") {
		if len(p.Syntax) == 0 {
			continue // tests only
		}
		d := documentation(t, p)
		prefix := "Package " + d.Name + " "
		if d.Name == "main" {
			prefix = "Command " + filepath.Base(p.PkgPath) + " "
		}
		s := d.Synopsis(d.Doc)
		if !strings.HasPrefix(s, prefix) || !strings.HasSuffix(s, ".") || len(s) > 200 {
			t.Errorf("%s: the synopsis is %q, must be a sentence that begins with %q, of at most 200 bytes", p.PkgPath, s, prefix)
		}
	}
}

// Each exported type is used in a runnable example of its package, and each tool of README.md has
// one of its own.
func TestExamples(t *testing.T) {
	t.Parallel()
	var patterns []string
	for name := range illustrated {
		patterns = append(patterns, module+"/"+name)
	}
	found := map[string]*examples{}
	for _, p := range load(t, true, patterns...) {
		if p.ForTest == "" {
			continue
		}
		e := found[p.ForTest]
		if e == nil {
			e = &examples{path: p.ForTest, used: map[string]bool{}, of: map[string]bool{}, aliases: map[string]string{}}
			found[p.ForTest] = e
		}
		e.read(p)
	}
	for _, p := range load(t, false, patterns...) {
		d, name := documentation(t, p), strings.TrimPrefix(p.PkgPath, module+"/")
		e := found[p.PkgPath]
		require.NotNil(t, e, p.PkgPath)
		require.Empty(t, e.silent, "%s: examples without an output, which do not run", name)
		require.NotEmpty(t, d.Types, name)
		for _, typ := range d.Types {
			if !e.used[typ.Name] {
				t.Errorf("%s.%s: no runnable example uses it", name, typ.Name)
			}
		}
		for _, tool := range illustrated[name] {
			if !e.of[tool] {
				t.Errorf("%s.%s: it has no runnable example", name, tool)
			}
		}
	}
}

// examples are the runnable examples of a package.
type examples struct {
	path    string
	used    map[string]bool   // exported types of the package
	of      map[string]bool   // what they are examples of: a type or a function, or "" for the package
	aliases map[string]string // of types of other packages, by those
	silent  []string
}

func (e *examples) read(p *packages.Package) {
	for _, imported := range p.Types.Imports() {
		if imported.Path() == e.path {
			for _, name := range imported.Scope().Names() {
				if alias, ok := imported.Scope().Lookup(name).Type().(*types.Alias); ok {
					e.aliases[alias.Rhs().String()] = name
				}
			}
		}
	}
	for _, file := range p.Syntax {
		for _, example := range doc.Examples(file) {
			if example.Output == "" && !example.EmptyOutput {
				e.silent = append(e.silent, example.Name)
				continue
			}
			name, _, _ := strings.Cut(example.Name, "_")
			e.of[name] = true
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "Example"+example.Name {
					e.use(p, f)
				}
			}
		}
	}
}

// use notes the types that a function names, those of the values that it handles, and the interfaces
// and function types for which it passes a value.
func (e *examples) use(p *packages.Package, f *ast.FuncDecl) {
	ast.Inspect(f, func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		e.note(p.TypesInfo.TypeOf(expr))
		if call, ok := n.(*ast.CallExpr); ok {
			if signature, ok := p.TypesInfo.TypeOf(call.Fun).(*types.Signature); ok {
				for param := range signature.Params().Variables() {
					switch param.Type().Underlying().(type) {
					case *types.Interface, *types.Signature:
						e.note(param.Type())
					}
				}
			}
		}
		return true
	})
}

// note notes a type, and those that it consists of.
func (e *examples) note(t types.Type) {
	named := func(name *types.TypeName, arguments *types.TypeList) {
		if name.Pkg() != nil && name.Pkg().Path() == e.path {
			e.used[name.Name()] = true
		}
		if alias, ok := e.aliases[name.Type().String()]; ok {
			e.used[alias] = true
		}
		for argument := range arguments.Types() {
			e.note(argument)
		}
	}
	switch t := t.(type) {
	case *types.Alias:
		named(t.Obj(), t.TypeArgs())
		e.note(t.Rhs())
	case *types.Named:
		named(t.Obj(), t.TypeArgs())
	case *types.Pointer:
		e.note(t.Elem())
	case *types.Slice:
		e.note(t.Elem())
	case *types.Array:
		e.note(t.Elem())
	case *types.Tuple:
		for v := range t.Variables() {
			e.note(v.Type())
		}
	}
}
