package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// goBlock is a block of Go, with the block of output that may follow it, or a comment of Go that readers
	// do not see: what snippets take for granted.
	goBlock = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```\n(?:\n```output\n(.*?)^```\n)?|^<!-- go: (.*?) -->\n")
	imports = regexp.MustCompile(`\A(import .*\n\s*)*`)
)

// given is what the snippets of all documents take for granted.
const given = `
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
	"limiter": "", "url": ""}

// checkSnippets compiles the Go of each document: programs as they are, and fragments as one package for each
// document, with the imports that they need. What prints is run.
func (t *tree) checkSnippets() error {
	work, err := workspace(t)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(work))
	files := token.NewFileSet()
	packages := make(map[string][]*ast.File) // by document, or by program
	for document, text := range t.documents {
		for i, m := range goBlock.FindAllStringSubmatch(text, -1) {
			name := fmt.Sprintf("%s, Go %d", document, i+1)
			code := m[1] + m[3]
			f, err := t.parse(files, name, code)
			if err != nil {
				t.report(document, "does not compile:", err.Error())
				continue
			}
			key := document
			if strings.HasPrefix(code, "package ") {
				key = name
			}
			packages[key] = append(packages[key], f)
			if m[2] != "" {
				t.run(document, work, code, m[2])
			}
		}
	}
	imported, err := exports(work, packages)
	if err != nil {
		return err
	}
	base, err := t.parse(files, "given", given)
	if err != nil {
		return err
	}
	config := types.Config{
		Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(imported[path]) }),
		Error: func(err error) {
			if e := err.(types.Error); !e.Soft { // a soft one is a variable that nothing uses
				t.report(files.Position(e.Pos).String(), "does not compile:", e.Msg)
			}
		},
	}
	for name, p := range packages {
		if t.documents[name] != "" {
			p = append(p, base)
		}
		config.Check(name, files, p, nil) // reports by itself
	}
	return nil
}

// parse parses a program, declarations, or statements, and adds the imports that are missing.
func (t *tree) parse(files *token.FileSet, name, code string) (*ast.File, error) {
	var f *ast.File
	var err error
	first := imports.FindString(code)
	for _, form := range []string{"%s%s", "package p; %s%s", "package p; %s func _() error { %s\nreturn nil }"} {
		text := fmt.Sprintf(form, first, code[len(first):])
		if f, err = parser.ParseFile(files, name, text, 0); err != nil {
			continue
		}
		missing := ""
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := s.X.(*ast.Ident)
			if ok && !strings.HasPrefix(code, "package ") && slices.Contains(f.Unresolved, id) && t.imports[id.Name] != "" {
				if line := fmt.Sprintf(";import %s %q", id.Name, t.imports[id.Name]); !strings.Contains(missing, line) {
					missing += line
				}
			}
			return true
		})
		head, rest, _ := strings.Cut(text, "package "+f.Name.Name)
		return parser.ParseFile(files, name, head+"package "+f.Name.Name+missing+rest, 0)
	}
	return nil, err
}

// workspace writes a go.work with all modules of the tree, and returns its path.
func workspace(t *tree) (string, error) {
	folder, err := os.MkdirTemp("", "check")
	if err != nil {
		return "", err
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	text := "go 1.26.0\n"
	for name := range t.files {
		if dir, ok := strings.CutSuffix(name, "go.mod"); ok && !strings.Contains(name, "testdata/") {
			text += "use " + filepath.Join(root, dir) + "\n"
		}
	}
	return filepath.Join(folder, "go.work"), os.WriteFile(filepath.Join(folder, "go.work"), []byte(text), 0o644)
}

// exports builds what the snippets import, and returns the files of export data.
func exports(work string, packages map[string][]*ast.File) (map[string]string, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "net/http", "github.com/throttr-go/throttr"}
	for _, p := range packages {
		for _, f := range p {
			for _, spec := range f.Imports {
				args = append(args, strings.Trim(spec.Path.Value, `"`))
			}
		}
	}
	slices.Sort(args[5:])
	cmd := exec.Command("go", append(args[:5], slices.Compact(args[5:])...)...)
	cmd.Env = append(os.Environ(), "GOWORK="+work)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("what snippets import: %w", err)
	}
	files := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		files[path] = file
	}
	return files, nil
}

// run runs a program, and compares what it prints with the document. What the go command prints, such as downloads, is
// not part of it.
func (t *tree) run(document, work, code, want string) {
	file, program := filepath.Join(filepath.Dir(work), "main.go"), filepath.Join(filepath.Dir(work), "program")
	if err := os.WriteFile(file, []byte(code), 0o644); err != nil {
		t.report(document, "does not run: a program:", err.Error())
		return
	}
	build := exec.Command("go", "build", "-o", program, file)
	build.Env = append(os.Environ(), "GOWORK="+work)
	if out, err := build.CombinedOutput(); err != nil {
		t.report(document, "does not build: a program:", string(out))
		return
	}
	out, err := exec.Command(program).CombinedOutput()
	switch {
	case string(out) != want:
		t.report(document, "prints something else: a program, which prints", string(out))
	case err != nil:
		t.report(document, "does not run: a program:", err.Error())
	}
}
