// Command check fails if a link of a document leads nowhere, if documents or comments name a test or a file that does
// not exist, if Go in documents does not compile, if something exported has no doc
// comment, or if the documents have too many words.
//
//	go run ./internal/check
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type set map[string]bool

// tree is what the files of the repository have.
type tree struct {
	files     set               // paths from the root, and their last elements
	documents map[string]string // Markdown, by path
	comments  map[string]string // of Go files, by path
	tests     set               // with benchmarks, fuzz targets and examples
	imports   map[string]string // paths of packages, by their names
	found     []string          // what is wrong
}

func main() {
	t, err := readTree(".")
	if err == nil {
		t.checkNames()
		t.checkLinks()
		t.checkWords()
		err = t.checkSnippets()
	}
	if err != nil {
		t.report("check", "fails:", err.Error())
	}
	slices.Sort(t.found)
	for _, line := range slices.Compact(t.found) {
		fmt.Println(line)
	}
	if len(t.found) > 0 {
		os.Exit(1)
	}
}

// report notes that something is wrong in a file.
func (t *tree) report(file, what, name string) {
	t.found = append(t.found, fmt.Sprintf("%s: %s %s", file, what, name))
}

// readTree reads all files below a folder.
func readTree(root string) (*tree, error) {
	t := &tree{files: set{}, documents: map[string]string{}, comments: map[string]string{}, tests: set{}, imports: map[string]string{}}
	return t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" && entry.IsDir() { // in a work tree, it is a file
			return fs.SkipDir
		}
		name = filepath.ToSlash(name)
		t.files[name] = true
		t.files[path.Base(name)] = true
		switch {
		case strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(name)
			t.documents[name] = string(text)
			return err
		case strings.HasSuffix(name, ".go") && !strings.Contains("/"+name, "/testdata/"):
			return t.readGo(name)
		}
		return nil
	})
}

// testName matches functions that documents name.
var testName = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// readGo reads a Go file.
func (t *tree) readGo(name string) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			t.comments[name] += c.Text + "\n"
		}
	}
	for _, spec := range f.Imports {
		t.addImport(spec)
	}
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		switch {
		case !ok:
		case testName.MatchString(d.Name.Name):
			t.tests[d.Name.Name] = true
		case !strings.HasSuffix(name, "_test.go") && d.Name.IsExported() && d.Doc == nil && exportedReceiver(d):
			t.report(files.Position(d.Pos()).String(), "no doc comment:", d.Name.Name)
		}
	}
	return nil
}

// exportedReceiver reports whether a function is none of a type that is not exported.
func exportedReceiver(d *ast.FuncDecl) bool {
	return d.Recv == nil || ast.IsExported(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"))
}

var (
	namedTest = regexp.MustCompile(`\b(Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9_]+`)
	namedFile = regexp.MustCompile(`\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*\.(go|md|yml|yaml|svg)\b`)
	link      = regexp.MustCompile(`\]\(([^) ]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	headLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// elsewhere are names that documents have on purpose although they do not exist here.
var elsewhere = set{"TestMyBackend": true, "TestLimits": true}

// checkNames finds tests that do not exist, and files, with a folder from the root or from the document, or without
// one.
func (t *tree) checkNames() {
	for _, texts := range []map[string]string{t.documents, t.comments} {
		for file, text := range texts {
			text = goBlock.ReplaceAllString(text, "")
			for _, name := range namedTest.FindAllString(text, -1) {
				if !t.tests[name] && !elsewhere[name] {
					t.report(file, "there is no", name)
				}
			}
			for _, name := range namedFile.FindAllString(text, -1) {
				if !t.files[name] && !t.files[path.Join(path.Dir(file), name)] {
					t.report(file, "there is no file", name)
				}
			}
		}
	}
}

// checkLinks finds links that lead to no file, or to no heading of it.
func (t *tree) checkLinks() {
	for file, text := range t.documents {
		for _, m := range link.FindAllStringSubmatch(goBlock.ReplaceAllString(text, ""), -1) {
			name, anchor, has := strings.Cut(m[1], "#")
			target := path.Join(path.Dir(file), name)
			if name == "" {
				target = file
			}
			switch {
			case strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://"):
			case !t.files[target]:
				t.report(file, "leads nowhere: the link", m[1])
			case has && !t.anchors(target)[anchor]:
				t.report(file, "has no such heading: the link", m[1])
			}
		}
	}
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func (t *tree) anchors(file string) set {
	all := set{}
	for _, m := range heading.FindAllStringSubmatch(t.documents[file], -1) {
		text := strings.ToLower(headLink.ReplaceAllString(strings.ReplaceAll(m[1], "`", ""), "$1"))
		anchor := strings.ReplaceAll(noAnchor.ReplaceAllString(text, ""), " ", "-")
		for i, next := 1, anchor; all[anchor]; i++ {
			anchor = fmt.Sprint(next, "-", i)
		}
		all[anchor] = true
	}
	return all
}

// checkWords bounds the documents: a reader has an hour at most.
func (t *tree) checkWords() {
	total := 0
	for file, text := range t.documents {
		if file != "benchmarks/RESULTS.md" && file != "CHANGELOG.md" { // figures, and what is past
			total += len(strings.Fields(text))
		}
	}
	if total > 26_000 || len(strings.Fields(t.documents["README.md"])) > 700 {
		t.report("the documents", "have more than 26000 words, or README.md more than 700:", fmt.Sprint(total))
	}
}
