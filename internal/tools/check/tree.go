package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// tree is what the files of the repository have.
type tree struct {
	files     set               // paths from the root, also of folders
	bases     set               // their last elements
	folders   set               // of the root
	documents map[string]string // Markdown, by path
	prose     map[string]string // the same without Go
	comments  map[string]string // of Go files, by path
	tests     set               // with benchmarks, fuzz targets and examples
	words     set               // of code: identifiers, and what is in strings
	flags     set               // of commands and tests, as code declares them
	imports   map[string]string // paths of packages, by the names that code has for them
	found     []string          // what is wrong
}

type set map[string]bool

// elsewhere is what is named on purpose although it does not exist here: flags of other programs, identifiers
// of other modules, and tests of readers.
var elsewhere = set{
	"run": true, "v": true, "race": true, "short": true, "bench": true, "fuzz": true, "fuzztime": true, "benchtime": true, "threads": true, "port": true, "markdown": true, "TestMyBackend": true, "TestLimits": true,
	"TextMarshaler": true, "TextUnmarshaler": true, "ClusterStateReloadInterval": true, "ClusterClient": true, "UnaryClientInterceptor": true, "StreamClientInterceptor": true,
}

var word = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// below matches files of packages that the root is made of, but for those that above matches: tests and what they use.
var (
	below = regexp.MustCompile(`^(codec|inspect|internal|lease|memory|mockserver|pubsub|rediswindow|window)/`)
	above = regexp.MustCompile(`_test\.go$|^internal/(testkit|tools)/`)
)

// readTree reads all files below a folder.
func readTree(root string) (*tree, error) {
	t := &tree{
		files: set{}, bases: set{}, folders: set{}, documents: map[string]string{}, prose: map[string]string{}, comments: map[string]string{}, tests: set{}, words: set{}, flags: set{},
		imports: maps.Clone(named),
	}
	return t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		if entry.Name() == ".git" {
			return skip(entry)
		}
		name = filepath.ToSlash(name)
		t.files[name], t.bases[path.Base(name)] = true, true
		if top, _, below := strings.Cut(name, "/"); below {
			t.folders[top] = true
		}
		switch {
		case entry.IsDir():
			return nil
		case strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(name)
			t.addDocument(name, string(text))
			return err
		case strings.HasSuffix(name, ".svg"):
			if info, err := entry.Info(); err != nil || info.Size() > 100_000 {
				t.report(name, "is larger than", "100 KB")
			}
		case strings.HasSuffix(name, ".go") && !strings.Contains("/"+name, "/testdata/"):
			return t.readGo(name)
		}
		return nil
	})
}

// addDocument adds a document.
func (t *tree) addDocument(name, text string) {
	t.documents[name], t.files[name] = text, true
	t.prose[name] = goBlock.ReplaceAllString(text, "")
}

func skip(entry fs.DirEntry) error {
	if entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// flagSets match what flags are declared on.
var flagSets = regexp.MustCompile(`^(flag|f|Flags|PersistentFlags)$`)

// addFlag adds the names of a flag, if the call declares one.
func (t *tree) addFlag(call *ast.CallExpr) {
	var on ast.Expr
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		on = f.X
	case *ast.Ident: // durationVar(flags, …)
		if on = f; len(call.Args) > 0 {
			on = call.Args[0]
		}
	}
	if made, ok := on.(*ast.CallExpr); ok {
		if of, ok := made.Fun.(*ast.SelectorExpr); ok {
			on = of.Sel
		}
	}
	if id, ok := on.(*ast.Ident); !ok || !flagSets.MatchString(id.Name) {
		return
	}
	for _, a := range call.Args[:min(len(call.Args), 3)] {
		if l, ok := a.(*ast.BasicLit); ok && l.Kind == token.STRING {
			t.flags[strings.Trim(l.Value, "\"`")] = true
		}
	}
}

// readGo reads a Go file.
func (t *tree) readGo(name string) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	var comments strings.Builder
	for _, group := range f.Comments {
		for _, c := range group.List {
			comments.WriteString(c.Text + "\n")
		}
	}
	t.comments[name] = comments.String()
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			t.words[n.Name] = true
		case *ast.CallExpr:
			t.addFlag(n)
		case *ast.BasicLit:
			for _, w := range word.FindAllString(n.Value, -1) {
				t.words[w] = true
			}
		}
		return true
	})
	for _, spec := range f.Imports {
		t.addImport(spec)
		if spec.Path.Value == `"github.com/throttr-go/throttr"` && below.MatchString(name) && !above.MatchString(name) {
			t.report(name, "is below the root, and imports", spec.Path.Value)
		}
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && testName.MatchString(d.Name.Name) {
			t.tests[d.Name.Name] = true
		}
		if !strings.HasSuffix(name, "_test.go") {
			t.checkDocumented(files, d)
		}
	}
	return nil
}

// addImport notes the name of a package that is imported. Of those with one name, the shortest path stands for
// it: one of the standard library, or of this module.
func (t *tree) addImport(spec *ast.ImportSpec) {
	importPath := strings.Trim(spec.Path.Value, `"`)
	name := path.Base(version.ReplaceAllString(importPath, ""))
	if known, ok := t.imports[name]; spec.Name == nil && (!ok || named[name] == "" && len(importPath) < len(known)) {
		t.imports[name] = importPath
	}
}

// checkDocumented finds an exported declaration that has no doc comment.
func (t *tree) checkDocumented(files *token.FileSet, d ast.Decl) {
	var doc *ast.CommentGroup
	var name *ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
			return
		}
		doc, name = d.Doc, d.Name
	case *ast.GenDecl:
		if s, ok := d.Specs[0].(*ast.TypeSpec); ok && len(d.Specs) == 1 {
			doc, name = d.Doc, s.Name
		}
	}
	if name != nil && name.IsExported() && doc == nil {
		t.report(files.Position(name.Pos()).String(), "no doc comment:", name.Name)
	}
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// report notes that something is wrong in a file.
func (t *tree) report(file, what, name string) {
	t.found = append(t.found, fmt.Sprintf("%s: %s %s", file, what, name))
}
