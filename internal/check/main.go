// Command check fails if a link of a document leads nowhere, if documents or comments name a test or a file that does
// not exist, or if Go in documents does not compile.
//
//	go run ./internal/check
package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type set map[string]bool

// tree is what the files of the repository have, and what is wrong.
type tree struct {
	names   set               // of files, with and without their folders, of tests, benchmarks and fuzz targets
	texts   map[string]string // Markdown, and comments of Go files, by path
	imports map[string]string // paths of packages, by their names
	found   set
}

func main() {
	log.SetFlags(0)
	t, err := readTree(".")
	if err == nil {
		t.checkTexts()
		err = t.checkSnippets()
	}
	if err != nil {
		log.Fatal("check: ", err)
	}
	if len(t.found) > 0 {
		log.Fatal(strings.Join(slices.Sorted(maps.Keys(t.found)), "\n"))
	}
}

// report notes that something is wrong in a file.
func (t *tree) report(file, what, name string) {
	t.found[fmt.Sprint(file, ": ", what, " ", name)] = true
}

// readTree reads all files below a folder.
func readTree(root string) (*tree, error) {
	t := &tree{set{"TestMyBackend": true}, map[string]string{}, map[string]string{}, set{}} // one of an example
	return t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() == ".git" && entry.IsDir() { // in a work tree, it is a file
			return cmp.Or(err, fs.SkipDir)
		}
		name = filepath.ToSlash(name)
		t.names[name] = true
		t.names[path.Base(name)] = true
		if ext := path.Ext(name); ext == ".md" || ext == ".go" {
			text, err := os.ReadFile(name)
			t.add(name, string(text))
			return err
		}
		return nil
	})
}

var (
	comment    = regexp.MustCompile(`(?m)^\s*// .*$|\s// [^"\n]*$`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	importPath = regexp.MustCompile(`(?m)^(?:import |\t)"([^"\s]+)"$`)
)

// add notes a document; of a Go file, the comments, the tests, and the packages that it imports under their own names.
// Of those with one name, the shortest path stands for it: one of the standard library, or of this module.
func (t *tree) add(name, text string) {
	t.texts[name] = text
	if path.Ext(name) == ".md" {
		return
	}
	t.texts[name] = strings.Join(comment.FindAllString(text, -1), "\n")
	for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
		t.names[m[1]] = true
	}
	for _, m := range importPath.FindAllStringSubmatch(text, -1) {
		name := path.Base(version.ReplaceAllString(m[1], ""))
		if known, ok := t.imports[name]; !ok || len(m[1]) < len(known) {
			t.imports[name] = m[1]
		}
	}
}

var (
	named    = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+|\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*\.(go|md|yml|yaml|svg)\b`)
	link     = regexp.MustCompile(`\]\(([^) :]+)\)`) // not a URL
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// checkTexts finds names of tests that do not exist, and of files, with a folder from the root or from the document, or
// without one; and links that lead to no file, or to no heading of it.
func (t *tree) checkTexts() {
	for file, text := range t.texts {
		text = goBlock.ReplaceAllString(text, "")
		folder := path.Dir(file)
		for _, name := range named.FindAllString(text, -1) {
			if !t.names[name] && !t.names[path.Join(folder, name)] {
				t.report(file, "there is no", name)
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			name, anchor, _ := strings.Cut(m[1], "#")
			target := path.Join(folder, cmp.Or(name, path.Base(file)))
			if !t.names[target] {
				t.report(file, "leads nowhere: the link", m[1])
			} else if anchor != "" && !t.anchors(target)[anchor] {
				t.report(file, "has no such heading: the link", m[1])
			}
		}
	}
}

// anchors returns the anchors of a document's headings, as GitHub makes them of text that occurs once and has no links.
func (t *tree) anchors(file string) set {
	all := set{}
	for _, m := range heading.FindAllStringSubmatch(t.texts[file], -1) {
		text := noAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(text, " ", "-")] = true
	}
	return all
}
