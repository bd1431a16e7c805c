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
	policyForm = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])+";q=\d{1,15};w=\d{1,15}$`)
	limitForm  = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])+";r=\d{1,15};t=\d{1,15}$`)
	numberForm = regexp.MustCompile(`^[1-9]\d{0,14}$`)
)

// FuzzMiddleware limits requests with arbitrary remote addresses and header fields by address.
// It checks that:
//
//   - each request is served or denied;
//   - the fields of the response contain the limit's name, and no byte of the request.
func FuzzMiddleware(f *testing.F) {
	f.Add("192.0.2.1:80", "203.0.113.9", "for=203.0.113.9", "minute", uint64(3), uint64(1), int64(time.Minute))
	f.Add("10.0.0.1:80", "203.0.113.9, 10.0.0.2", `for="[2001:db8::1%eth0]:_p", for=10.0.0.2`, `a"b\c`, uint64(0), uint64(0), int64(1))
	f.Add("[::ffff:10.0.0.1%x]:80", "::ffff:203.0.113.9", "for=unknown", " ", uint64(999999999999999), uint64(1)<<63-1, int64(1<<63-1))
	f.Add("@", "fe80::1%eth0", `for="`, "\x7f", uint64(1), uint64(2), int64(0))
	f.Add("0", "0", "0", "0", uint64(3), uint64(1), int64(time.Minute))
	f.Add("", "[::1]:99999,,", "for=[::1]\r\nX: y", "é", uint64(1)<<63, uint64(1), int64(-1))
	f.Fuzz(func(t *testing.T, remote, forwardedFor, forwarded, name string, quota, cost uint64, window int64) {
		limit := throttr.Limit{Name: name, Max: quota, Scale: time.Duration(window)}
		backend := memory.New(memory.WithCleanPeriod(0))
		defer backend.Close()
		for field, value := range map[string]string{"X-Forwarded-For": forwardedFor, "Forwarded": forwarded} {
			key, err := httplimit.ByAddr(httplimit.AddrConfig{Proxies: prefixes("10.0.0.0/8"), UnixProxy: true, Header: field})
			require.NoError(t, err)
			wrap, err := httplimit.New(throttr.NewRateLimit(backend), httplimit.Config{
				Limits: []throttr.Limit{limit}, Key: key, Cost: func(*http.Request, throttr.Limit) uint64 { return cost },
			})
			if err != nil {
				require.ErrorIs(t, err, throttr.ErrConfig)
				return
			}
			served := 0
			h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = remote
			r.Header[field] = []string{value}
			for range 2 {
				w := httptest.NewRecorder()
				before := served
				h.ServeHTTP(w, r)
				require.Equal(t, served > before, w.Code == http.StatusOK)
				switch {
				case cost > throttr.Unlimited:
					require.Equal(t, http.StatusInternalServerError, w.Code)
					continue
				case quota == throttr.Unlimited:
					require.True(t, served > before)
					continue
				}
				require.Regexp(t, policyForm, w.Header().Get("RateLimit-Policy"))
				if served == before {
					require.Equal(t, http.StatusTooManyRequests, w.Code)
				}
				if cost > quota || quota == 0 {
					require.False(t, served > before && cost > 0)
					continue
				}
				require.Regexp(t, limitForm, w.Header().Get("RateLimit"))
				if served == before {
					require.Regexp(t, numberForm, w.Header().Get("Retry-After"))
				}
			}
		}
	})
}
