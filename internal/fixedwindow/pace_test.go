package fixedwindow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys are begun in as few groups as possible, whose calls travel together: all that there is room for, but no few of
// many.
func TestKeysAreBegunTogether(t *testing.T) {
	p := newPace()
	p.most = 1000
	begin := func(n, want int) {
		t.Helper()
		some, _ := p.begin(n)
		require.Equal(t, want, some)
	}
	begin(800, 800)
	begin(500, 200)
	begin(1, 0)
	p.end(maxBatch-1, 0)
	begin(500, 0)
	begin(100, 100)
	p.end(maxBatch-27, 0)
	begin(500, maxBatch)
	p.end(1000, 0)
	p.most = minPace
	begin(500, minPace)
}
