package servicetime_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/servicetime"
)

func TestServiceTimeIsBounded(t *testing.T) {
	for _, each := range []time.Duration{-1, 0, servicetime.Max + 1} {
		_, err := servicetime.New(each)
		require.ErrorContains(t, err, "service time is 0 to 1ms, not "+each.String())
	}
}

func TestNilThreadDoesNothing(t *testing.T) {
	var thread *servicetime.Thread
	require.NoError(t, thread.Start(nil))
	thread.Wait()
	thread.Spend(thread.Begin(), 1<<40)
	require.Equal(t, 7, thread.ReadSize(7))
	thread.Close()
}

func TestThreadServesOneConnectionAfterTheOther(t *testing.T) {
	const each, rounds = 100 * time.Microsecond, 50
	thread, err := servicetime.New(each)
	require.NoError(t, err)
	require.Equal(t, codec.MaxFrame, thread.ReadSize(1<<20))
	var all, connections sync.WaitGroup
	require.NoError(t, thread.Start(&all))
	var mu sync.Mutex
	start := time.Now()
	for range 3 {
		connections.Go(func() {
			for range rounds {
				mu.Lock()
				thread.Spend(thread.Begin(), 1)
				mu.Unlock()
				thread.Wait()
			}
		})
	}
	connections.Wait()
	require.GreaterOrEqual(t, time.Since(start), 3*rounds*each)
	thread.Close()
	all.Wait()
	thread.Wait()
}
