package main

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed list
var lists embed.FS

// readFaults returns the faults of all files of the folder list. There is a paragraph for each: a line with the name of
// its file, the folder of the tests if it is another one, and the pattern of the tests if it is not all; the text that
// is there, each of its lines after a minus sign; and the text that replaces it, after plus signs.
//
//	memory/memory.go tests=lease run=^TestClean$
//	-if left > 0 {
//	+if left >= 0 {
func readFaults() ([]fault, error) {
	files, err := fs.Glob(lists, "list/*.txt")
	if err != nil {
		return nil, err
	}
	var all []fault
	for _, name := range files {
		text, err := lists.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, paragraph := range strings.Split(string(text), "\n\n")[1:] { // the first one is a comment
			f, err := parseFault(paragraph)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, f)
		}
	}
	return all, nil
}

func parseFault(paragraph string) (f fault, err error) {
	head, body, _ := strings.Cut(strings.TrimSpace(paragraph), "\n")
	for i, field := range strings.Fields(head) {
		name, value, _ := strings.Cut(field, "=")
		switch {
		case i == 0:
			f.file = field
		case name == "tests":
			f.tests = value
		case name == "run":
			f.run = value
		default:
			return f, fmt.Errorf("%q has the unknown field %q", head, field)
		}
	}
	var before, after []string
	for _, line := range strings.Split(body, "\n") {
		switch {
		case strings.HasPrefix(line, "-"):
			before = append(before, line[1:])
		case strings.HasPrefix(line, "+"):
			after = append(after, line[1:])
		default:
			return f, fmt.Errorf("%q has the line %q, which is neither text that is there nor what replaces it",
				head, line)
		}
	}
	f.old = strings.Join(before, "\n")
	f.new = strings.Join(after, "\n")
	return f, nil
}
