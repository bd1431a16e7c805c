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
	}
	for name, attempts := range map[string][]attempt{
		"two":                           {{err: silent}, {err: silent, lockedUp: true}, {err: silent, lockedUp: true}},
		"success between them":          {{err: silent}, {}, {err: silent}, {err: silent, lockedUp: true}},
		"another failure between them":  {{err: silent}, {err: other}, {err: silent}, {err: silent, lockedUp: true}},
		"recovery":                      {{err: silent}, {err: silent, lockedUp: true}, {}, {err: silent}},
		"at the same time":              {{err: silent}, {err: silent, begins: time.Second}, {err: silent, lockedUp: true}},
		"a connection receives":         {{err: silent}, {err: silent, received: 1}, {err: silent, received: 2}, {err: silent, received: 2, lockedUp: true}},
		"a connection receives, later":  {{err: silent}, {err: silent, lockedUp: true}, {err: silent, received: 1}},
		"refused until it is restarted": {{err: silent}, {err: silent, lockedUp: true}, {err: other, lockedUp: true}, {}, {err: other}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s silence
				for i, a := range attempts {
					start := time.Now().Add(-a.begins)
					time.Sleep(5 * time.Second)
					before := s.lockedUp
					changed := s.check(a.err, start, a.received)
					require.Equal(t, a.lockedUp, s.lockedUp, i)
					require.Equal(t, a.lockedUp != before, changed, i)
				}
			})
		})
	}
}
