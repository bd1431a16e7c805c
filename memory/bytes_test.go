//go:build !race

package memory_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestAWindowAndItsKeyTakeFewBytes(t *testing.T) {
	const n = 500_000
	b := memory.New()
	defer b.Close()
	before := heap()
	for i := range n {
		caller{t, b, window.FixedWindow}.hit(fmt.Sprintf("user:%011d", i), time.Hour)
	}
	perKey := float64(heap()-before) / n
	t.Logf("%.1f bytes for each of %d keys of 16 bytes", perKey, n)
	require.LessOrEqual(t, perKey, 160.0)
	require.Equal(t, n, b.Len())
	runtime.KeepAlive(b)
}
