package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The text of a fault occurs once, so it can be planted.
func TestFaultsCanBePlanted(t *testing.T) {
	faults, err := readFaults()
	require.NoError(t, err)
	require.NotEmpty(t, faults)
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join("..", "..", f.file))
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(text), f.old), "%s: %s", f.file, f.old)
	}
}
