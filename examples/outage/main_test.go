package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPoliciesDecideWhileTheStoreIsAway(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `return an error:
  allowed: true, by the store
  an error: the store is away
  allowed: true, by the store
allow hits:
  allowed: true, by the store
  allowed: true, without the store
  allowed: true, by the store
deny hits:
  allowed: true, by the store
  allowed: false, without the store
  allowed: true, by the store
fallback in memory:
  allowed: true, by the store
  allowed: true, without the store
  allowed: true, by the store
`, out.String())
}
