package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

func TestEachStoreShowsTheSame(t *testing.T) {
	for _, store := range []string{"memory://", "mock", "throttr://" + mockserver.RunT(t).Addr()} {
		var out strings.Builder
		require.NoError(t, run(t.Context(), store, &out))
		require.Equal(t, `allowed: true, 2 remaining
allowed: true, 1 remaining
allowed: true, 0 remaining
allowed: false, 0 remaining
200 OK
  RateLimit-Policy: "api";q=2;w=60
  RateLimit: "api";r=1;t=60
200 OK
  RateLimit-Policy: "api";q=2;w=60
  RateLimit: "api";r=0;t=60
429 Too Many Requests
  RateLimit-Policy: "api";q=2;w=60
  RateLimit: "api";r=0;t=60
  Retry-After: 60
`, regexp.MustCompile(`(t=|After: )\d+`).ReplaceAllString(out.String(), "${1}60"), store)
	}
	require.ErrorContains(t, run(t.Context(), "throttr://127.0.0.1:1", new(strings.Builder)), "connection refused")
}
