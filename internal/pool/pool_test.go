package pool_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/pool"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, to(inMemory(t)), pool.Options[uint16]{})
		require.NoError(t, s.query(t.Context(), "k").err)
		require.Equal(t, 1, s.Stats().Conns)
	})
}
