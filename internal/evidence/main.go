// Command evidence writes the tables of docs/evidence.md: what this module claims, and for each
// claim the command that shows it. A test states its claim in a directive of its doc comment:
//
//	// TestFloodNeverExceedsTheLimit has many clients hit a few keys as fast as they can.
//	//
//	//evidence:limits Never more than the limit in a window
//	func TestFloodNeverExceedsTheLimit(t *testing.T) {
//
// The word after the colon is the section of the document.
//
//	go run ./internal/evidence          # prints the tables
//	go run ./internal/evidence -write   # puts them into docs/evidence.md
//	go run ./internal/evidence -check   # fails if docs/evidence.md has others
//	go run ./internal/evidence -run     # runs every command
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	document = "docs/evidence.md"
	begin    = "<!-- tables: written by go run ./internal/evidence -write -->\n"
	end      = "<!-- /tables -->\n"
)

// sections are the tables, in their order, by the word of the directive.
var sections = []struct{ word, title string }{
	{"limits", "Limits"},
	{"outages", "Outages and dying programs"},
	{"client", "Client"},
	{"bounds", "Bounds"},
	{"codec", "Codec"},
	{"memory", "Memory"},
	{"redis", "Redis"},
	{"http", "HTTP"},
	{"mockserver", "Mock server"},
}

// claim is one row.
type claim struct {
	section string
	text    string
	folder  string // of the test's package, relative to the root, with slashes
	module  string // the folder of its module; "." for the main module
	test    string
}

// command returns the shell command that shows c.
func (c claim) command() string {
	if c.module != "." {
		return fmt.Sprintf("go test -C %s -run '^%s$' %s", c.module, c.test, c.pattern())
	}
	return fmt.Sprintf("go test -run '^%s$' %s", c.test, c.pattern())
}

// pattern returns the go command's name of c's package, seen from the folder of its module.
func (c claim) pattern() string {
	rel := strings.Trim(strings.TrimPrefix(c.folder, c.module), "/")
	if rel == "" || rel == "." {
		return "."
	}
	return "./" + rel
}

func main() {
	write := flag.Bool("write", false, "put the tables into "+document)
	check := flag.Bool("check", false, "fail if "+document+" has other tables")
	run := flag.Bool("run", false, "run every command")
	flag.Parse()
	if err := evidence(*write, *check, *run); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

func evidence(write, check, run bool) error {
	claims, err := find(".")
	if err != nil {
		return err
	}
	if run {
		return runAll(claims)
	}
	tables := format(claims)
	if !write && !check {
		_, err := os.Stdout.Write(tables)
		return err
	}
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, ok1 := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return fmt.Errorf("%s does not have the lines %q and %q", document, begin, end)
	}
	updated := slices.Concat(before, []byte(begin), tables, []byte(end), after)
	if check {
		if !bytes.Equal(old, updated) {
			return fmt.Errorf("%s is out of date: go run ./internal/evidence -write", document)
		}
		return nil
	}
	return os.WriteFile(document, updated, 0o644)
}

// find returns the claims of all tests below root, in the order of files and lines.
func find(root string) ([]claim, error) {
	var claims []claim
	module := "."
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base == "testdata" || strings.HasPrefix(base, ".") && base != "." {
				return filepath.SkipDir
			}
			folder := filepath.ToSlash(name)
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				module = folder
			} else if module != "." && !strings.HasPrefix(folder+"/", module+"/") {
				module = "."
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		if inModule := path.Dir(filepath.ToSlash(name)); module != "." && !strings.HasPrefix(inModule+"/", module+"/") {
			module = "."
		}
		found, err := claimsOf(name, module)
		claims = append(claims, found...)
		return err
	})
	return claims, err
}

// claimsOf returns the claims of one file.
func claimsOf(name, module string) ([]claim, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var claims []claim
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Doc == nil {
			continue
		}
		for _, line := range f.Doc.List {
			directive, ok := strings.CutPrefix(line.Text, "//evidence:")
			if !ok {
				continue
			}
			section, text, _ := strings.Cut(directive, " ")
			if title(section) == "" || text == "" {
				return nil, fmt.Errorf("%s: %s: want //evidence:section claim, with a known section", name, f.Name.Name)
			}
			claims = append(claims, claim{
				section: section, text: text, folder: path.Dir(filepath.ToSlash(name)), module: module, test: f.Name.Name,
			})
		}
	}
	return claims, nil
}

// title returns the title of a section, "" if there is none of that word.
func title(word string) string {
	for _, s := range sections {
		if s.word == word {
			return s.title
		}
	}
	return ""
}

// format returns the tables in Markdown.
func format(claims []claim) []byte {
	var b bytes.Buffer
	for _, s := range sections {
		rows := slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return c.section != s.word })
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| claim | what shows it |\n|---|---|\n", s.title)
		for _, c := range rows {
			fmt.Fprintf(&b, "| %s | `%s` |\n", c.text, c.command())
		}
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// runAll runs the tests of all claims, package by package, and fails if one fails or does not
// run.
func runAll(claims []claim) error {
	if len(claims) == 0 {
		return errors.New("there are no claims")
	}
	packages := make(map[string][]claim)
	for _, c := range claims {
		packages[c.folder] = append(packages[c.folder], c)
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		if err := runPackage(packages[folder]); err != nil {
			return err
		}
	}
	return nil
}

// runPackage runs the tests of claims, which are in one package.
func runPackage(claims []claim) error {
	var tests []string
	for _, c := range claims {
		tests = append(tests, c.test)
	}
	fmt.Println(claims[0].folder, strings.Join(tests, " "))
	cmd := exec.Command("go", "test", "-v", "-run", "^("+strings.Join(tests, "|")+")$", claims[0].pattern())
	cmd.Dir = claims[0].module
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	for _, c := range claims {
		if !bytes.Contains(out, []byte("--- PASS: "+c.test+" ")) {
			return fmt.Errorf("%s: it did not run, or was skipped", c.command())
		}
	}
	return nil
}
