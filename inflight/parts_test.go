package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/window"
)

// parted is a store of parts, which are known by and by. What asks the part "a" may hang, and each exchange takes a
// while.
type parted struct {
	*remote
	known, hangs atomic.Bool
	takes        atomic.Int64 // nanoseconds
}

func (b *parted) Part(key string) string {
	if b.known.Load() {
		return key[:1]
	}
	return ""
}

func (b *parted) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	wait := time.After(time.Duration(b.takes.Load()))
	for _, c := range claims {
		if c.Key[0] == 'a' && b.hangs.Load() {
			wait = nil
		}
	}
	select {
	case <-wait:
		return b.remote.Exchange(ctx, claims, places)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newParted(t *testing.T) *parted {
	return &parted{remote: newRemote(t)}
}

// A part of the store that hangs costs no places of others, even if they were acquired when the parts were not known.
func TestAPartThatHangsCostsNoPlacesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newParted(t)
		l := newLimiter(t, b)
		of := map[string][]*inflight.Hold{}
		for i := range 20 {
			for _, part := range []string{"a", "b"} {
				of[part] = append(of[part], acquire(t, l, fmt.Sprint(part, i), exports, 1))
			}
		}
		b.known.Store(true)
		b.hangs.Store(true)
		time.Sleep(5 * exports.Lease)
		for i := range 20 {
			require.False(t, of["a"][i].Valid())
			require.True(t, of["b"][i].Valid())
		}
		require.EqualValues(t, 20, l.Stats().Lost)
		denied(t, l, "b0", exports, 2)
	})
}

// Keys with a lease that is too short for the store cost no places of others.
func TestAShortLeaseCostsNoPlacesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newParted(t)
		l := newLimiter(t, b)
		for i := range 20 {
			acquire(t, l, fmt.Sprint("long", i), exports, 1)
		}
		b.takes.Store(int64(20 * time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 20 {
			go func() {
				for ctx.Err() == nil {
					l.Acquire(ctx, fmt.Sprint("short", i), inflight.Limit{Max: 1, Lease: 60 * time.Millisecond}, 1)
					time.Sleep(time.Millisecond)
				}
			}()
		}
		time.Sleep(10 * exports.Lease)
		require.Zero(t, l.Stats().Lost)
		denied(t, l, "long0", exports, 2)
		cancel()
		b.takes.Store(0)
		time.Sleep(time.Second) // no probe must be under way when the bubble ends
	})
}

// More places than a store can count, which a policy has granted, fail no exchange of others.
func TestPlacesThatCannotBeToldCostNoPlacesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newParted(t)
		l := newLimiter(t, b, inflight.WithPolicy(inflight.Admit))
		most := exports
		most.Max = window.MaxPlaces
		b.away.Store(true)
		for range 3 {
			acquire(t, l, "k", most, most.Max)
		}
		b.away.Store(false)
		time.Sleep(exports.Lease)
		h := acquire(t, l, "other", exports, 1)
		time.Sleep(3 * exports.Lease)
		require.True(t, h.Valid())
		require.Zero(t, l.Stats().Lost)
	})
}

// One key of a store can't be served, and others are, so that no circuit opens. A call for it that waits does not
// wait for ever: not at all if the store says that it can't, and otherwise a lease.
func TestAKeyThatCannotBeServedKeepsNobodyWaiting(t *testing.T) {
	for name, failure := range map[string]struct {
		err   error
		after time.Duration
	}{
		"the store says so":        {errors.New("WRONGTYPE Operation against a key"), 0},
		"the store is full":        {throttr.ErrFull, 0},
		"the store does not serve": {fmt.Errorf("%w: CLUSTERDOWN Hash slot not served", throttr.ErrUnavailable), exports.Lease},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := failing{newRemote(t), failure.err}
				l := newLimiter(t, b)
				ctx, cancel := context.WithTimeout(t.Context(), 10*exports.Lease)
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						acquire(t, l, "good", exports, 1).Release()
						time.Sleep(time.Millisecond)
					}
				}()
				begun := time.Now()
				_, err := l.Acquire(ctx, "bad", exports, 1)
				require.ErrorIs(t, err, failure.err)
				require.GreaterOrEqual(t, time.Since(begun), failure.after)
				require.LessOrEqual(t, time.Since(begun), failure.after+exports.Lease/4)
				cancel()
				synctest.Wait()
				time.Sleep(time.Second)
			})
		})
	}
}

// failing is a store that fails for the key "bad".
type failing struct {
	*remote
	err error
}

func (b failing) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	err := b.remote.Exchange(ctx, claims, places)
	for i := range claims {
		if claims[i].Key == "bad" {
			places[i] = window.Places{Err: b.err}
		}
	}
	return err
}
