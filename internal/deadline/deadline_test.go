package deadline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/deadline"
)

type contextKey struct{}

// parents returns contexts that do not end in the test, as callers have them.
func parents(t *testing.T) map[string]context.Context {
	cancelable, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	later, cancel := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	return map[string]context.Context{
		"background": context.Background(), "cancelable": cancelable, "deadline": later,
		"values": context.WithValue(cancelable, contextKey{}, 1), "without cancel": context.WithoutCancel(cancelable),
	}
}

func TestABoundEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := deadline.New(160 * time.Millisecond)
		for name, parent := range parents(t) {
			for offset := range 20 {
				time.Sleep(time.Duration(offset) * time.Millisecond)
				begun := time.Now()
				c := b.Context(parent)
				at, ok := c.Deadline()
				require.True(t, ok)
				require.NoError(t, c.Err())
				require.Equal(t, parent.Value(contextKey{}), c.Value(contextKey{}))
				child, cancel := context.WithTimeout(c, time.Minute)
				<-child.Done()
				took := time.Since(begun)
				require.LessOrEqual(t, took, 160*time.Millisecond, name)
				require.GreaterOrEqual(t, took, 150*time.Millisecond, name)
				require.WithinDuration(t, at, time.Now(), 0)
				<-c.Done()
				require.Equal(t, context.DeadlineExceeded, c.Err())
				require.Equal(t, context.DeadlineExceeded, child.Err())
				require.Equal(t, context.DeadlineExceeded, context.Cause(c))
				require.True(t, c.Exceeded())
				cancel()
				c.Release()
			}
		}
	})
}

// All calls of a period take what New promises, not only the first one.
func TestCallsOfAPeriodTakeAtLeastFifteenSixteenths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := deadline.New(160 * time.Millisecond)
		for range 40 {
			begun := time.Now()
			at, _ := b.Context(context.Background()).Deadline()
			require.GreaterOrEqual(t, at.Sub(begun), 150*time.Millisecond)
			require.LessOrEqual(t, at.Sub(begun), 160*time.Millisecond)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
	})
}

func TestTheCallerEndsABoundedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := deadline.New(time.Second)
		parent, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		c := b.Context(parent)
		defer c.Release()
		at, _ := c.Deadline()
		require.Equal(t, time.Now().Add(100*time.Millisecond), at)
		<-c.Done()
		require.Equal(t, context.DeadlineExceeded, c.Err())
		require.False(t, c.Exceeded(), "it was the caller's deadline")
		time.Sleep(time.Second)
		require.False(t, c.Exceeded())
	})
}

func TestWhatIsReleasedHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := deadline.New(time.Second).Context(parent)
		done := c.Done()
		stopped := make(chan bool)
		context.AfterFunc(c, func() { close(stopped) })
		c.Release()
		<-done
		<-stopped
		require.Equal(t, context.Canceled, c.Err())
		require.False(t, c.Exceeded())
		c.Release()
	})
}

// Calls at one time share a timer, and calls of different periods do not.
func TestCallsShareTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := deadline.New(1600 * time.Millisecond)
		ends := map[<-chan struct{}]bool{}
		for range 1600 {
			ends[b.Context(context.Background()).Done()] = true
			time.Sleep(time.Millisecond)
		}
		require.Len(t, ends, 16)
		time.Sleep(2 * time.Second)
	})
}

func TestEndsAreThoseOfTheCallerAndTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := deadline.New(160 * time.Millisecond)
		for name, parent := range parents(t) {
			c := b.Context(parent)
			caller, bound := deadline.Ends(c)
			require.Equal(t, parent.Done(), caller, name)
			<-bound
			require.Equal(t, context.DeadlineExceeded, c.Err(), name)
			at, _ := c.Deadline()
			require.WithinDuration(t, at, time.Now(), 0, name)
			caller, bound = deadline.Ends(parent)
			require.Equal(t, parent.Done(), caller, name)
			require.Nil(t, bound, name)
			c.Recycle()
		}
	})
}

// A context that somebody waits for, or that was released, is not that of another call.
func TestOnlyWhatIsRecycledIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := deadline.New(time.Hour)
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "first"))
		defer cancel()
		awaited, released, derived := b.Context(parent), b.Context(parent), b.Context(context.Background())
		done := awaited.Done()
		child, cancelChild := context.WithCancel(derived)
		cancelChild()
		awaited.Recycle()
		released.Release()
		derived.Recycle()
		<-done
		for range 100 {
			c := b.Context(context.WithValue(t.Context(), contextKey{}, "other"))
			require.NotSame(t, awaited, c)
			require.NotSame(t, released, c)
			require.NotSame(t, derived, c, "contexts of the last call may ask it still")
			require.Equal(t, "other", c.Value(contextKey{}))
			require.NoError(t, c.Err())
			c.Recycle()
		}
		require.Equal(t, context.Canceled, awaited.Err())
		require.Equal(t, "first", released.Value(contextKey{}))
		require.Nil(t, child.Value(contextKey{}))
	})
}
