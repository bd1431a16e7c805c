// Command faults plants faults in a copy of the module, one after the other, and reports those that no
// test sees. A fault replaces a piece of text, which occurs once in its file, by another one.
//
//	go run ./internal/faults                  # all faults of the folder list
//	go run ./internal/faults -only lease      # those whose file matches a regular expression
//
// Each fault costs a run of the tests that should see it, with as few processes as possible.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// fault is a mistake in a file, which tests must see.
type fault struct {
	file     string // relative to the root
	old, new string
	tests    string // the package of the tests, if it is not that of the file
	run      string // a pattern of the tests that must see it; without one, all of the package
}

func main() {
	only := flag.String("only", "", "plant only faults in files that match the pattern")
	flag.Parse()
	if err := plantAll(regexp.MustCompile(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// plantAll plants the faults in files that match, and fails if one is not seen.
func plantAll(only *regexp.Regexp) error {
	root, err := os.MkdirTemp("", "faults")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := os.CopyFS(filepath.Join(root, "tree"), os.DirFS(".")); err != nil {
		return err
	}
	root = filepath.Join(root, "tree")
	faults, err := readFaults()
	if err != nil {
		return err
	}
	seen, unseen := 0, 0
	for _, f := range faults {
		if !only.MatchString(f.file) {
			continue
		}
		found, err := f.plant(root)
		switch {
		case err != nil:
			unseen++
			fmt.Printf("%s: %q can't be planted: %v\n", f.file, f.old, err)
		case found:
			seen++
			fmt.Printf("%s: %q is seen\n", f.file, f.new)
		default:
			unseen++
			fmt.Printf("%s: nothing sees that %q is %q\n", f.file, f.old, f.new)
		}
	}
	fmt.Printf("%d faults were seen, %d were not\n", seen, unseen)
	if unseen > 0 {
		return fmt.Errorf("%d faults were not seen", unseen)
	}
	return nil
}

// plant plants f in the tree below root, runs its tests, and removes it. It reports whether they fail.
func (f fault) plant(root string) (seen bool, err error) {
	name := filepath.Join(root, filepath.FromSlash(f.file))
	text, err := os.ReadFile(name)
	if err != nil {
		return false, err
	}
	if n := bytes.Count(text, []byte(f.old)); n != 1 {
		return false, fmt.Errorf("it occurs %d times, want once", n)
	}
	if err := os.WriteFile(name, bytes.Replace(text, []byte(f.old), []byte(f.new), 1), 0o644); err != nil {
		return false, err
	}
	defer os.WriteFile(name, text, 0o644)
	folder := f.tests
	if folder == "" {
		folder = path.Dir(f.file)
	}
	cmd := exec.Command("go", "test", "-vet=off", "-failfast", "-timeout", "3m", "-run", f.run, ".")
	cmd.Dir = filepath.Join(root, filepath.FromSlash(folder))
	cmd.Env = append(os.Environ(), "GOFLAGS=-p=1 -trimpath", "THROTTR_SLOW_TESTS=1")
	output, err := cmd.CombinedOutput()
	switch text := string(output); {
	case strings.Contains(text, "no tests to run") || strings.Contains(text, "[build failed]") ||
		strings.Contains(text, "[setup failed]"):
		return false, fmt.Errorf("%v: %s", cmd, text)
	case err == nil:
		return false, nil
	}
	return true, nil
}
