package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestActualCostsAreCounted(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `1 acme  reserved 305 tokens, used 85
2 acme  reserved 303 tokens, used 123
3 acme  reserved 303 tokens, used 293
4 acme  failed: the model is overloaded
5 acme  reserved 303 tokens, used 63
6 acme  reserved 303 tokens, used 303
7 acme  refused: 133 tokens and 1 requests left
8 smith reserved 301 tokens, used 11
`, out.String())
}
