package conn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoadCountsRequestsAndCalls(t *testing.T) {
	var c loadCounter
	c.add(5, 1)
	c.add(1<<20, 1)
	c.add(1, 1)
	require.Equal(t, 6+1<<20, c.get().Requests())
	require.Equal(t, 3, c.get().Calls())
	before := c.get()
	c.remove(6, 2)
	require.Less(t, c.get(), before)
	require.Equal(t, 1, c.get().Calls())
	c.remove(1<<20, 1)
	require.Zero(t, c.get())
}
