package redisbackend_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/redistest"
)

// A parameter of the URL makes its hosts those of Sentinels.
func TestOpenBehindSentinel(t *testing.T) {
	primary := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, primary)
	b, err := throttr.Open(t.Context(), "redis://"+sentinel.Addr+"?timeout=10s&master_set="+redistest.SentinelName)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 3 {
		res, err := throttr.NewRateLimit(b).Hit(t.Context(), "k", time.Minute, 2)
		if err != nil || res.Allowed != (i < 2) {
			t.Errorf("hit %d: %+v, %v", i, res, err)
		}
	}
}
