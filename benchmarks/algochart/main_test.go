package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChartsAreCurrent(t *testing.T) {
	files, err := files()
	require.NoError(t, err)
	require.Len(t, files, 2)
	for path, svg := range files {
		committed, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(path)))
		require.NoError(t, err)
		require.Equal(t, string(svg), string(committed), "%s: go -C benchmarks run ./algochart -write", path)
	}
}
