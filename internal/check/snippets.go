package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing/fstest"
)

var (
	// goBlock is a block of Go, or a comment of Go that readers do not see: what snippets take for granted.
	goBlock = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```\n|^<!-- go: (.*?) -->\n")
	imports = regexp.MustCompile(`\A(import .*\n\s*)*`)
	used    = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)
	version = regexp.MustCompile(`/v[0-9]+$`)
	// harmless are errors of the compiler that are none of the document, whose fragments may be variants.
	harmless = regexp.MustCompile(`declared and not used|imported (as .*)?and not used|redeclared in this block|other declaration of|^#|too many errors|^go: downloading`)
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

// others are packages that snippets use without an import, of those that others share the name of; and the variables,
// which are none.
var others = map[string]string{"rand": "math/rand/v2", "redis": "github.com/redis/go-redis/v9",
	"rate":    "golang.org/x/time/rate",
	"limiter": "", "url": "", "ctx": "", "client": "", "backend": "", "mux": ""}

// checkSnippets compiles the Go of all documents: programs as they are, and the fragments of a document as one package,
// with the imports that they need.
func (t *tree) checkSnippets() error {
	work, err := os.MkdirTemp("", "check")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	maps.Copy(t.imports, others)
	files := fstest.MapFS{"go.work": file(t.workspace()), "go.mod": file("module snippets\ngo 1.25\n")}
	for document, text := range t.texts {
		folder := strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(document)
		for i, m := range goBlock.FindAllStringSubmatch(text, -1) {
			code, name := m[1]+m[2], fmt.Sprintf("%s/go%d.go", folder, i+1)
			if strings.HasPrefix(code, "package ") {
				name = fmt.Sprintf("%s_%d/main.go", folder, i+1)
			} else {
				code = t.complete(code)
				files[folder+"/given.go"] = file(given)
			}
			files[name] = file(fmt.Sprintf("//line %s, Go %d:1\n%s", document, i+1, code))
		}
	}
	if err := os.CopyFS(work, files); err != nil {
		return err
	}
	out, _ := exec.Command("go", "-C", work, "build", "-gcflags=-e", "./...").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); !harmless.MatchString(line) {
			t.report("Go of documents", "does not compile:", line)
		}
	}
	return nil
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }

// workspace is a go.work of the snippets and of all modules of the repository.
func (t *tree) workspace() string {
	root, _ := os.Getwd()
	// The command requires a version that is not released, and no module here replaces it.
	text := fmt.Sprintf("go 1.26.0\nuse .\nreplace github.com/throttr-go/throttr/postgresbackend v0.1.0 => %q\n",
		filepath.Join(root, "postgresbackend"))
	for name := range t.names {
		if filepath.Base(name) == "go.mod" && !strings.Contains(name, "testdata/") {
			text += fmt.Sprintf("use %q\n", filepath.Join(root, filepath.Dir(name)))
		}
	}
	return text
}

// complete makes a file of declarations or statements, and adds the imports that they use, also of those that they have.
func (t *tree) complete(code string) string {
	first := imports.FindString(code)
	code = code[len(first):]
	head := "package p; " + first
	for _, m := range used.FindAllStringSubmatch(code, -1) {
		if from := t.imports[m[1]]; from != "" {
			head += fmt.Sprintf("import %s %q;", m[1], from)
		}
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", head+"\n"+code, 0); err == nil {
		return head + "\n" + code
	}
	return head + "\nfunc _() error { " + code + "\nreturn nil }"
}
