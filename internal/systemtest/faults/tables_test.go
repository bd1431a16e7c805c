package faults_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var tables = flag.String("fault.tables", "", "the `folder` to which tables of faults and shifts are written")

// writeTable writes a table to the file of its name, if the tables are wanted.
func writeTable(t *testing.T, name, table string) {
	t.Helper()
	if *tables != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*tables, name+".md"), []byte(table), 0o644))
	}
}
