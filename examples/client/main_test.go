package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExamplePrintsResults(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	for _, line := range []string{
		"INSERT: true, and once more: false\n",
		"DECREASE by 4: true, by 7: false; left: 6 (found: true)\n",
		"GET: \"apples are on sale\" (found: true)\n",
		"a batch of 4 requests: taken: true, left: 1\n",
		"100 goroutines: 100 visitors\n",
		"(is ErrTTL: true)\n",
		"(safe to retry: true)\n",
	} {
		require.Contains(t, out.String(), line)
	}
}
