package pool

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/dial"
)

func TestTwoSilentAttemptsMakeALockUp(t *testing.T) {
	silent := fmt.Errorf("attempt: %w", dial.ErrSilent)
	other := errors.New("refused")
	type attempt struct {
		begins   time.Duration // before the end of the attempt before; 0 means after it
		err      error
		received uint64
		lockedUp bool
		changed  bool
	}
	for name, attempts := range map[string][]attempt{
		"two":                          {{err: silent}, {err: silent, lockedUp: true, changed: true}, {err: silent, lockedUp: true}},
		"success between them":         {{err: silent}, {}, {err: silent}, {err: silent, lockedUp: true, changed: true}},
		"another failure between them": {{err: silent}, {err: other}, {err: silent}, {err: silent, lockedUp: true, changed: true}},
		"recovery":                     {{err: silent}, {err: silent, lockedUp: true, changed: true}, {changed: true}},
		"at the same time":             {{err: silent}, {err: silent, begins: time.Second}, {err: silent, lockedUp: true, changed: true}},
		"a connection receives": {
			{err: silent}, {err: silent, received: 1}, {err: silent, received: 2}, {err: silent, received: 2, lockedUp: true, changed: true},
		},
		"a connection receives, later": {{err: silent}, {err: silent, lockedUp: true, changed: true}, {err: silent, received: 1, changed: true}},
		"refused until it is restarted": {
			{err: silent}, {err: silent, lockedUp: true, changed: true}, {err: other}, {err: other}, {changed: true}, {err: other}, {},
		},
		"locked up again": {{err: silent}, {err: silent, lockedUp: true, changed: true}, {err: other}, {err: silent}, {err: silent, lockedUp: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s silence
				for i, a := range attempts {
					start := time.Now().Add(-a.begins)
					time.Sleep(5 * time.Second)
					err, changed := s.check(a.err, start, a.received)
					require.ErrorIs(t, err, a.err, i)
					require.Equal(t, a.lockedUp, errors.Is(err, ErrLockedUp), i)
					require.Equal(t, a.lockedUp, s.lockedUp, i)
					require.Equal(t, a.changed, changed, i)
				}
			})
		})
	}
}
