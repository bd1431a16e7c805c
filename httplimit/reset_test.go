package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// X-RateLimit-Reset is the same moment as seconds and as a time, whatever the algorithm is.
func TestResetAsATimeIsResetInSeconds(t *testing.T) {
	algorithms := []window.Algorithm{window.PerKey, window.Aligned, window.TokenBucket, window.Sliding, window.SlidingLog}
	for _, a := range algorithms {
		for _, hits := range []bool{false, true} {
			clock := backendtest.NewClock()
			responses := map[httplimit.Legacy][]int64{}
			for _, legacy := range []httplimit.Legacy{httplimit.LegacySeconds, httplimit.LegacyUnix} {
				b := memory.New(memory.WithClock(clock.Now), memory.WithAlgorithm(a))
				defer b.Close()
				limit, err := httplimit.New(throttr.NewRateLimit(b), httplimit.Config{
					Limits: []httplimit.Limit{{Name: "x", Limit: 10, Window: time.Minute}}, Legacy: legacy, CountRefusals: hits, Clock: clock.Now,
					Cost: func(r *http.Request) uint64 { n, _ := strconv.ParseUint(r.URL.Path[1:], 10, 64); return n },
				})
				require.NoError(t, err)
				handler := limit(http.NotFoundHandler())
				for _, cost := range []string{"0", "6", "4", "1", "5", "11"} {
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+cost, nil))
					reset, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
					require.NoError(t, err)
					if legacy == httplimit.LegacyUnix {
						reset -= clock.Now().Unix()
					}
					responses[legacy] = append(responses[legacy], reset)
				}
			}
			require.Equal(t, responses[httplimit.LegacySeconds], responses[httplimit.LegacyUnix], "%v, hits %v", a, hits)
		}
	}
}

// stalling is a backend that does not respond to give-backs.
type stalling struct {
	*memory.Backend
	given int
}

func (s *stalling) GiveBack(ctx context.Context, _ string, _ time.Duration, _ int64, _ uint64) (bool, error) {
	s.given++
	<-ctx.Done()
	return false, ctx.Err()
}

// A request that one limit denies gives back what others have granted. It does not wait for that longer than
// its context lasts.
func TestADeniedRequestDoesNotWaitForABackendThatStalls(t *testing.T) {
	for name, last := range map[string]httplimit.Limit{
		"refused":  {Name: "last", Limit: 0, Window: time.Hour},
		"too much": {Name: "last", Limit: 1, Window: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := &stalling{Backend: memory.New(memory.WithCleanPeriod(0))}
				defer first.Close()
				other := memory.New(memory.WithCleanPeriod(0))
				defer other.Close()
				last.Limiter = throttr.NewRateLimit(other)
				cost := uint64(2)
				if name == "refused" {
					last.Limit = cost
				}
				limit, err := httplimit.New(throttr.NewRateLimit(first), httplimit.Config{
					Limits: []httplimit.Limit{{Name: "first", Limit: 10, Window: time.Minute}, last},
					Cost:   func(*http.Request) uint64 { return cost }, Key: func(*http.Request) string { return "k" },
				})
				require.NoError(t, err)
				handler := limit(http.NotFoundHandler())
				if name == "refused" {
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				w, begun := httptest.NewRecorder(), time.Now()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				require.Equal(t, 200*time.Millisecond, time.Since(begun))
				synctest.Wait()
				require.Equal(t, 1, first.given)
				time.Sleep(time.Minute)
			})
		})
	}
}
