package main

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// The text of a fault occurs once, so it can be planted, and there are tests of its pattern.
func TestFaultsCanBePlanted(t *testing.T) {
	faults, err := readFaults()
	require.NoError(t, err)
	require.NotEmpty(t, faults)
	tests := map[string]string{} // by folder
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join("..", "..", f.file))
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(text), f.old), "%s: %s", f.file, f.old)
		run, _, _ := strings.Cut(f.run, "/")
		folder := cmp.Or(f.tests, path.Dir(f.file))
		if tests[folder] == "" {
			tests[folder] = testsOf(t, folder)
		}
		assert.Regexp(t, "(?m)"+run, tests[folder], "%s: no test", f.file)
	}
}

// testsOf returns the names of the tests in a folder, a line each.
func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	require.NoError(t, err)
	var names []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return strings.Join(names, "\n")
}
