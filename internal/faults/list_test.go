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

// guarantee is a row of docs/guarantees.md: what holds, the test that shows it and its folder, and a file in which a
// fault is planted that the test sees.
var guarantee = regexp.MustCompile("(?m)^\\| (.+) \\| `((?:Test|Fuzz)\\w+)` in (\\S.*?) \\| `(\\S+)` \\|$")

// Each guarantee has a test, and a fault that this test alone must see.
func TestEachGuaranteeHasATestThatSeesAFault(t *testing.T) {
	faults, err := readFaults()
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/guarantees.md")
	require.NoError(t, err)
	rows := guarantee.FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(rows), 40)
	require.Equal(t, strings.Count(string(page), "| `Test")+strings.Count(string(page), "| `Fuzz"), len(rows), "a row has no fault")
	for _, row := range rows {
		test, folder, file := row[2], strings.Replace(row[3], "the root", ".", 1), row[4]
		tests, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, name := range tests {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			found = found || strings.Contains(string(text), "func "+test+"(")
		}
		assert.True(t, found, "%s is not in %s", test, folder)
		assert.True(t, planted(faults, test, folder, file), "%s in %s: no fault in %q has run ^%s$", test, folder, file, test)
	}
}

// planted reports whether a fault in the file must be seen by the test.
func planted(faults []fault, test, folder, file string) bool {
	for _, f := range faults {
		in := f.tests
		if in == "" {
			in = path.Dir(f.file)
		}
		if run, _, _ := strings.Cut(f.run, "/"); f.file == file && in == folder && run == "^"+test+"$" {
			return true
		}
	}
	return false
}
