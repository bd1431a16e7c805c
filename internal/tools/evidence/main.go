// Command evidence writes the tables of docs/evidence.md: what this module guarantees, and for each
// guarantee the command that shows it. A test states the guarantee in a directive of its doc
// comment:
//
//	// TestFloodNeverExceedsTheLimit has many clients hit a few keys as fast as they can.
//	//
//	//evidence:limits Never more than the limit in a window
//	func TestFloodNeverExceedsTheLimit(t *testing.T) {
//
// The word after the colon is the section of the document.
//
//	go -C internal/tools run ./evidence          # prints the tables
//	go -C internal/tools run ./evidence -write   # puts them into docs/evidence.md
//	go -C internal/tools run ./evidence -check   # fails if docs/evidence.md has others
//	go -C internal/tools run ./evidence -run     # runs every command
//
// It also measures the tables of docs/reliability.md, and puts them there:
//
//	go -C internal/tools run ./evidence -measure
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

// tables is where the tables of all sections are.
var tables = part{"docs/evidence.md", "<!-- tables: written by go -C internal/tools run ./evidence -write -->\n", "<!-- /tables -->\n"}

// sections are the tables, in their order, by the word of the directive.
var sections = []struct{ word, title string }{
	{"limits", "Limits"},
	{"outages", "Outages and dying programs"},
	{"client", "Client"},
	{"bounds", "Bounds"},
	{"codec", "Codec"},
	{"takes", "Takes, reservations and waits"},
	{"memory", "Memory"},
	{"redis", "Redis"},
	{"http", "HTTP"},
	{"mockserver", "Mock server"},
}

// guarantee is one row.
type guarantee struct {
	section string
	text    string
	folder  string // of the test's package, relative to the root, with slashes
	module  string // the folder of its module; "." for the main module
	test    string
}

// command returns the shell command that shows c.
func (c guarantee) command() string {
	if c.module != "." {
		return fmt.Sprintf("go test -C %s -run '^%s$' %s", c.module, c.test, c.pattern())
	}
	return fmt.Sprintf("go test -run '^%s$' %s", c.test, c.pattern())
}

// pattern returns the go command's name of c's package, seen from the folder of its module.
func (c guarantee) pattern() string {
	rel := strings.Trim(strings.TrimPrefix(c.folder, c.module), "/")
	if rel == "" || rel == "." {
		return "."
	}
	return "./" + rel
}

func main() {
	write := flag.Bool("write", false, "put the tables into "+tables.document)
	check := flag.Bool("check", false, "fail if "+tables.document+" has other tables")
	run := flag.Bool("run", false, "run every command")
	measured := flag.Bool("measure", false, "measure the tables of "+measured)
	flag.Parse()
	if err := evidence(*write, *check, *run, *measured); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

func evidence(write, check, run, measured bool) error {
	if err := os.Chdir("../.."); err != nil { // from internal/tools to the root
		return err
	}
	if measured {
		return measure()
	}
	guarantees, err := find(".")
	switch {
	case err != nil:
		return err
	case run:
		return runAll(guarantees)
	case write:
		return tables.write(format(guarantees))
	case check:
		return tables.check(format(guarantees))
	default:
		_, err := os.Stdout.Write(format(guarantees))
		return err
	}
}

// find returns the guarantees of all tests below root, in the order of files and lines.
func find(root string) ([]guarantee, error) {
	var guarantees []guarantee
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (base == "testdata" || strings.HasPrefix(base, ".") && base != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		found, err := guaranteesOf(name, moduleOf(path.Dir(filepath.ToSlash(name))))
		guarantees = append(guarantees, found...)
		return err
	})
	return guarantees, err
}

// moduleOf returns the folder of the module that a folder belongs to.
func moduleOf(folder string) string {
	for folder != "." {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
		folder = path.Dir(folder)
	}
	return folder
}

// guaranteesOf returns the guarantees of one file.
func guaranteesOf(name, module string) ([]guarantee, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var guarantees []guarantee
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
				return nil, fmt.Errorf("%s: %s: want //evidence:section guarantee, with a known section", name, f.Name.Name)
			}
			guarantees = append(guarantees, guarantee{
				section: section, text: text, folder: path.Dir(filepath.ToSlash(name)), module: module, test: f.Name.Name,
			})
		}
	}
	return guarantees, nil
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
func format(guarantees []guarantee) []byte {
	var b bytes.Buffer
	for _, s := range sections {
		rows := slices.DeleteFunc(slices.Clone(guarantees), func(c guarantee) bool { return c.section != s.word })
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| guarantee | what shows it |\n|---|---|\n", s.title)
		for _, c := range rows {
			fmt.Fprintf(&b, "| %s | `%s` |\n", c.text, c.command())
		}
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// runAll runs the tests of all guarantees, package by package, and fails if one fails or does not
// run.
func runAll(guarantees []guarantee) error {
	if len(guarantees) == 0 {
		return errors.New("there are no guarantees")
	}
	packages := make(map[string][]guarantee)
	for _, c := range guarantees {
		packages[c.folder] = append(packages[c.folder], c)
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		if err := runPackage(packages[folder]); err != nil {
			return err
		}
	}
	return nil
}

// runPackage runs the tests of guarantees, which are in one package.
func runPackage(guarantees []guarantee) error {
	var tests []string
	for _, c := range guarantees {
		tests = append(tests, c.test)
	}
	fmt.Println(guarantees[0].folder, strings.Join(tests, " "))
	cmd := exec.Command("go", "test", "-v", "-run", "^("+strings.Join(tests, "|")+")$", guarantees[0].pattern())
	cmd.Dir = guarantees[0].module
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	for _, c := range guarantees {
		if !bytes.Contains(out, []byte("--- PASS: "+c.test+" ")) {
			return fmt.Errorf("%s: it did not run, or was skipped", c.command())
		}
	}
	return nil
}
