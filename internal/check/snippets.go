package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// goBlock is a block of Go, or a comment of Go that readers do not see: what snippets take for granted.
	goBlock = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```\n|^<!-- go: (.*?) -->\n")
	imports = regexp.MustCompile(`\A(import .*\n\s*)*`)
	used    = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)
	version = regexp.MustCompile(`/v[0-9]+$`)
	// harmless are errors of the compiler that are none of the document, whose fragments may be variants.
	harmless = regexp.MustCompile(`declared and not used|imported and not used|redeclared in this block|other declaration of|^#|too many errors`)
)

// given is what the snippets of all documents take for granted.
const given = `package p; import ("context"; "net/http"; "github.com/throttr-go/throttr")
var (
	ctx     context.Context
	url     string
	limiter *throttr.RateLimit
	backend throttr.Backend
	client  *throttr.Client[uint16]
	mux     *http.ServeMux
)`

// named are packages that snippets use without an import, of those that others share the name of.
var named = map[string]string{"rand": "math/rand/v2", "redis": "github.com/redis/go-redis/v9", "rate": "golang.org/x/time/rate",
	"limiter": "", "url": "", "ctx": "", "client": "", "backend": "", "mux": ""}

// addImport notes the name of a package that is imported. Of those with one name, the shortest path stands for
// it: one of the standard library, or of this module.
func (t *tree) addImport(spec *ast.ImportSpec) {
	importPath := strings.Trim(spec.Path.Value, `"`)
	name := path.Base(version.ReplaceAllString(importPath, ""))
	if known, ok := t.imports[name]; spec.Name == nil && (!ok || len(importPath) < len(known)) {
		t.imports[name] = importPath
	}
}

// checkSnippets compiles the Go of all documents: programs as they are, and the fragments of a document as one package,
// with the imports that they need.
func (t *tree) checkSnippets() error {
	work, err := os.MkdirTemp("", "check")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	text := "go 1.26.0\nuse ./snippets\n"
	for name := range t.files {
		if dir, ok := strings.CutSuffix(name, "/go.mod"); ok && !strings.Contains(name, "testdata/") {
			text += fmt.Sprintf("use %q\n", filepath.Join(root, dir))
		}
	}
	text += fmt.Sprintf("use %q\n", root)
	// The command requires a version that is not released, and no module here replaces it.
	text += fmt.Sprintf("replace github.com/throttr-go/throttr/postgresbackend v0.1.0 => %q\n", filepath.Join(root, "postgresbackend"))
	snippets := filepath.Join(work, "snippets")
	files := map[string]string{filepath.Join(work, "go.work"): text, filepath.Join(snippets, "go.mod"): "module snippets\ngo 1.25\n"}
	for document, text := range t.documents {
		fragments := strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(document)
		for i, m := range goBlock.FindAllStringSubmatch(text, -1) {
			code := m[1] + m[2]
			name, folder := fmt.Sprintf("go%d.go", i+1), fragments
			if strings.HasPrefix(code, "package ") {
				folder = fmt.Sprint(fragments, "_", i+1)
			} else {
				code = t.complete(code)
				files[filepath.Join(snippets, fragments, "given.go")] = given
			}
			files[filepath.Join(snippets, folder, name)] = fmt.Sprintf("//line %s, Go %d:1\n%s", document, i+1, code)
		}
	}
	for name, text := range files {
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	out, _ := exec.Command("go", "-C", snippets, "build", "-gcflags=-e", "./...").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); !harmless.MatchString(line) && !strings.HasPrefix(line, "go: downloading") {
			t.report("Go of documents", "does not compile:", line)
		}
	}
	return nil
}

// complete makes a file of declarations or statements, and adds the imports that are missing.
func (t *tree) complete(code string) string {
	first := imports.FindString(code)
	code = code[len(first):]
	head := "package p; " + first
	for _, m := range used.FindAllStringSubmatch(code, -1) {
		name := m[1]
		from, ok := named[name]
		if !ok {
			from = t.imports[name]
		}
		if line := fmt.Sprintf("import %s %q;", name, from); from != "" && !strings.Contains(head, line) && !strings.Contains(first, fmt.Sprintf("%q", from)) {
			head += line
		}
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", head+"\n"+code, 0); err == nil {
		return head + "\n" + code
	}
	return head + "\nfunc _() error { " + code + "\nreturn nil }"
}
