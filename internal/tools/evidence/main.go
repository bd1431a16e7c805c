// Command evidence writes the tables of docs/guarantees.md: what this module guarantees, and the test that shows
// it. A test states the guarantee in a directive of its doc comment:
//
//	// TestFloodNeverExceedsTheLimit has many clients hit a few keys as fast as they can.
//	//
//	//evidence:limits Never more than the limit in a window
//	func TestFloodNeverExceedsTheLimit(t *testing.T) {
//
// The word after the colon is the section.
//
//	go -C internal/tools run ./evidence          # prints the tables
//	go -C internal/tools run ./evidence -write   # puts them into the document
//	go -C internal/tools run ./evidence -check   # fails if it has others
//	go -C internal/tools run ./evidence -run     # runs every test
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
	document = "docs/guarantees.md"
	begin    = "<!-- tables: written by go -C internal/tools run ./evidence -write -->\n"
	end      = "<!-- /tables -->\n"
)

// sections are the tables, in their order, by the word of the directive.
var sections = []struct{ word, title string }{
	{"limits", "Limits"},
	{"takes", "Takes, waits, places in flight"},
	{"memory", "Memory"},
	{"redis", "Redis"},
	{"outages", "Outages and dying programs"},
	{"client", "Client, codec and mock server"},
	{"http", "HTTP"},
}

// guarantee is one row.
type guarantee struct {
	section string
	text    string
	folder  string // of the test's package, from the root, with slashes
	test    string
}

func main() {
	write := flag.Bool("write", false, "put the tables into "+document)
	check := flag.Bool("check", false, "fail if it has others")
	run := flag.Bool("run", false, "run every test")
	flag.Parse()
	if err := evidence(*write, *check, *run); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

func evidence(write, check, run bool) error {
	if err := os.Chdir("../.."); err != nil { // from internal/tools to the root
		return err
	}
	guarantees, err := find(".")
	if err != nil {
		return err
	}
	if run {
		return runAll(guarantees)
	}
	if !write && !check {
		_, err := os.Stdout.Write(format(guarantees))
		return err
	}
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, ok1 := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	updated := slices.Concat(before, []byte(begin), format(guarantees), []byte(end), after)
	switch {
	case !ok1 || !ok2:
		return fmt.Errorf("%s does not have the lines %q and %q", document, begin, end)
	case write:
		return os.WriteFile(document, updated, 0o644)
	case !bytes.Equal(old, updated):
		return fmt.Errorf("%s is out of date: go -C internal/tools run ./evidence -write", document)
	}
	return nil
}

// find returns the guarantees of all tests below root, in the order of files and lines.
func find(root string) (guarantees []guarantee, err error) {
	return guarantees, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (base == "testdata" || strings.HasPrefix(base, ".") && base != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		found, err := guaranteesOf(name)
		guarantees = append(guarantees, found...)
		return err
	})
}

// guaranteesOf returns the guarantees of one file.
func guaranteesOf(name string) (guarantees []guarantee, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
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
			g := guarantee{folder: path.Dir(filepath.ToSlash(name)), test: f.Name.Name}
			if g.section, g.text, ok = strings.Cut(directive, " "); !ok || !known(g.section) {
				return nil, fmt.Errorf("%s: %s: want //evidence:section guarantee, with a known section", name, g.test)
			}
			guarantees = append(guarantees, g)
		}
	}
	return guarantees, nil
}

func known(word string) bool {
	for _, s := range sections {
		if s.word == word {
			return true
		}
	}
	return false
}

// format returns the tables in Markdown.
func format(guarantees []guarantee) []byte {
	var b bytes.Buffer
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n| | shown by |\n|---|---|\n", s.title)
		for _, g := range guarantees {
			if g.section == s.word {
				fmt.Fprintf(&b, "| %s | `%s` in %s |\n", g.text, g.test, strings.Replace(g.folder, ".", "the root", 1))
			}
		}
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// runAll runs the tests of all guarantees, package by package, and fails if one fails or does not run.
func runAll(guarantees []guarantee) error {
	tests := make(map[string][]string) // by folder
	for _, g := range guarantees {
		tests[g.folder] = append(tests[g.folder], g.test)
	}
	if len(tests) == 0 {
		return errors.New("there are no guarantees")
	}
	for _, folder := range slices.Sorted(maps.Keys(tests)) {
		fmt.Println(folder, strings.Join(tests[folder], " "))
		cmd := exec.Command("go", "test", "-C", folder, "-v", "-run", "^("+strings.Join(tests[folder], "|")+")$", ".")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		for _, test := range tests[folder] {
			if !bytes.Contains(out, []byte("--- PASS: "+test+" ")) {
				return fmt.Errorf("%s in %s did not run, or was skipped", test, folder)
			}
		}
	}
	return nil
}
