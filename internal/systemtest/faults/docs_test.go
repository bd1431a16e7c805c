package faults_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateDocs = flag.Bool("update", false, "write the tables of docs/reliability.md")

const docs = "../../../docs/reliability.md"

// checkDocs requires that docs/reliability.md has the rows of table between the markers of name.
// The figures may differ. With -update, it writes the table there.
func checkDocs(t *testing.T, name, table string) {
	t.Helper()
	text, err := os.ReadFile(docs)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(text), "<!-- "+name+" -->\n")
	old, after, ends := strings.Cut(rest, "<!-- /"+name+" -->\n")
	require.True(t, begins && ends, "%s has no markers of %s", docs, name)
	if !*updateDocs {
		require.Equal(t, labels(table), labels(old), "go test -run '%s$' ./internal/systemtest/faults -update writes the table", t.Name())
		return
	}
	text = fmt.Appendf(nil, "%s<!-- %s -->\n%s<!-- /%s -->\n%s", before, name, table, name, after)
	require.NoError(t, os.WriteFile(docs, text, 0o644))
}

// labels returns the headings of text and the first column of its tables.
func labels(text string) (all []string) {
	for line := range strings.Lines(text) {
		if columns := strings.Split(line, " | "); len(columns) > 1 || strings.HasPrefix(line, "#") {
			all = append(all, columns[0])
		}
	}
	return all
}
