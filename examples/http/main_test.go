package main

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

func TestTheSixthRequestIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes
		backend := memory.New()
		defer backend.Close()
		handler, err := site(throttr.NewRateLimit(backend))
		require.NoError(t, err)
		get := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w
		}
		for left := 4; left >= 0; left-- {
			require.Equal(t, fmt.Sprintf("Hello, 192.0.2.1! Requests left: %d.\n", left), get("/").Body.String())
		}
		denied := get("/")
		require.Equal(t, 429, denied.Code)
		require.Equal(t, `"burst";r=0;t=10, "hour";r=95;t=3600`, denied.Header().Get("RateLimit"))
		require.Equal(t, `"burst";q=5;w=10, "hour";q=100;w=3600`, denied.Header().Get("RateLimit-Policy"))
		require.Equal(t, "10", denied.Header().Get("Retry-After"))
		require.Equal(t, "Too many requests. Try again in 10 s.\n", denied.Body.String())
		require.Equal(t, "ok\n", get("/healthz").Body.String())
	})
}
