package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// The syntax of the fields that middleware sets, by RFC 9651 and RFC 9110.
var (
	policyForm = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])+";q=\d{1,15};w=\d{1,15};pk=:[A-Za-z0-9+/]+={0,2}:$`)
	limitForm  = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])+";r=\d{1,15};t=\d{1,15};pk=:[A-Za-z0-9+/]+={0,2}:$`)
	numberForm = regexp.MustCompile(`^[1-9]\d{0,14}$`)
)

// FuzzMiddleware limits requests with arbitrary keys, costs and limits. It checks that each is served or denied, and
// that the fields of the response contain no byte of the request.
func FuzzMiddleware(f *testing.F) {
	f.Add("192.0.2.1", "minute", uint64(3), uint64(1), int64(time.Minute))
	f.Add("\r\nX: y", `a"b\c`, uint64(0), uint64(0), int64(1))
	f.Add("", " ", uint64(999999999999999), uint64(1)<<63-1, int64(1<<63-1))
	f.Add("unknown", "\x7f", uint64(1), uint64(2), int64(0))
	f.Add("k", "é", uint64(1)<<63, uint64(1), int64(-1))
	f.Fuzz(func(t *testing.T, key, name string, quota, cost uint64, window int64) {
		backend := memory.New(memory.WithCleanPeriod(0))
		defer backend.Close()
		wrap, err := httplimit.New(throttr.NewRateLimit(backend), httplimit.Config{
			Limits:       []throttr.Limit{{Name: name, Max: quota, Scale: time.Duration(window)}},
			Key:          func(*http.Request) string { return key },
			Cost:         func(*http.Request, throttr.Limit) uint64 { return cost },
			PartitionKey: true,
			PlainKeys:    true,
		})
		if err != nil {
			require.ErrorIs(t, err, throttr.ErrConfig)
			return
		}
		served := 0
		h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		for range 2 {
			served = 0
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			switch {
			case cost > throttr.Unlimited:
				require.Equal(t, 500, w.Code)
			case quota == throttr.Unlimited, cost == 0:
				require.Equal(t, 1, served)
			default:
				require.Equal(t, served == 0, w.Code == 429)
				require.True(t, served == 0 || cost <= quota)
				require.Regexp(t, policyForm, w.Header().Get("RateLimit-Policy"))
				if cost <= quota && quota > 0 {
					require.Regexp(t, limitForm, w.Header().Get("RateLimit"))
					require.True(t, served == 1 || numberForm.MatchString(w.Header().Get("Retry-After")))
				}
			}
		}
	})
}
