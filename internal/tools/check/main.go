// Command check fails if something that is exported has no documentation, or if what documents and comments
// name does not exist: tests, files, links and their anchors, identifiers, flags of commands. It compiles the Go
// of documents, runs what prints there, and counts words.
//
//	go -C internal/tools run ./check
package main

import (
	"fmt"
	"os"
	"slices"
)

func main() {
	if err := os.Chdir("../.."); err != nil { // from internal/tools to the root
		fail(err)
	}
	t, err := readTree(".")
	if err != nil {
		fail(err)
	}
	if err := t.check(); err != nil {
		fail(err)
	}
	slices.Sort(t.found)
	for _, line := range slices.Compact(t.found) {
		fmt.Println(line)
	}
	if len(t.found) > 0 {
		os.Exit(1)
	}
}

// check checks everything.
func (t *tree) check() error {
	t.checkTests()
	t.checkFiles()
	t.checkIdentifiers()
	t.checkLinks()
	t.checkFlags()
	t.checkWords()
	return t.checkSnippets()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "check:", err)
	os.Exit(1)
}
