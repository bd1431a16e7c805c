package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// imports is where the graph of imports is.
var imports = part{"docs/design.md", "<!-- imports: written by go -C internal/tools run ./evidence -write -->\n```\n", "```\n<!-- /imports -->\n"}

// unlisted are packages that the graph leaves out: commands, examples, and what only tests use.
var unlisted = regexp.MustCompile(`^(cmd|examples|fuzz|codec/uint|codec/internal|internal/faults|internal/(testkit|redistest|systemtest|intervals))`)

// above are packages below the root, by their paths, that may import it.
var above = regexp.MustCompile(`^(backendtest|entities|examples|fuzz|httplimit|internal/(testkit|systemtest|faults))`)

// importGraph returns which packages of the main module import which, tests aside. It fails if a package below
// the root imports the root.
func importGraph() ([]byte, error) {
	module, err := output("go", "list", "-m")
	if err != nil {
		return nil, err
	}
	module = strings.TrimSpace(module)
	list, err := output("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	short := func(path string) string {
		if path == module {
			return "throttr"
		}
		return strings.TrimPrefix(path, module+"/")
	}
	var graph bytes.Buffer
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		name, line := short(fields[0]), ""
		for _, path := range fields[1:] {
			if path == module && !above.MatchString(name) {
				return nil, fmt.Errorf("%s imports the root, which is above it", name)
			}
			if path == module || strings.HasPrefix(path, module+"/") {
				line += " " + short(path)
			}
		}
		if line != "" {
			line = "→" + line
		}
		if !unlisted.MatchString(name) {
			graph.WriteString(strings.TrimRight(fmt.Sprintf("%-22s%s", name, line), " ") + "\n")
		}
	}
	return graph.Bytes(), nil
}

// output returns what a command prints.
func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	return string(out), err
}
