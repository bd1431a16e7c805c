//go:build !race

package memory_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
)

func TestWindowAndKeyTakeFewBytes(t *testing.T) {
	const n = 1_000_000
	b := memory.New(memory.WithMaxKeys(2 * n))
	defer b.Close()
	before := heap()
	fill(t, b, n)
	perKey := float64(heap()-before) / n
	t.Logf("%.1f bytes for each of %d keys of 16 bytes", perKey, n)
	require.LessOrEqual(t, perKey, 95.0)
	require.Equal(t, n, b.Len())
	runtime.KeepAlive(b)
}
