package servicetime_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/servicetime"
)

func TestServiceTimeIsBounded(t *testing.T) {
	for _, each := range []time.Duration{-1, servicetime.Max + 1} {
		require.ErrorContains(t, servicetime.Costs{Request: each}.Check(), "service time is 0 to 1ms, not "+each.String())
	}
	require.NoError(t, servicetime.Costs{Request: servicetime.Max}.Check())
}

func TestCreationSlowsDownAsServerMakesRecords(t *testing.T) {
	for made, want := range map[int]time.Duration{
		0: 3 * time.Microsecond, 10_000: 19 * time.Microsecond, 20_000: 35 * time.Microsecond,
		30_500: 87500 * time.Nanosecond, servicetime.OldAge: 140 * time.Microsecond, 1 << 40: 140 * time.Microsecond,
	} {
		require.Equal(t, want, servicetime.Creation(made), made)
	}
	for op := codec.OpInsert; op <= codec.OpWhoAmI; op++ {
		want := 6 * time.Microsecond
		if op == codec.OpInsert || op == codec.OpSet {
			want += 140 * time.Microsecond
		}
		require.Equal(t, want, servicetime.TCP.Of(op, 50_000, 0, 0), op)
	}
	c := servicetime.Costs{Request: time.Microsecond}
	require.Equal(t, time.Microsecond, c.Of(codec.OpInsert, 50_000, 1000, 1000))
}

func TestRecordsAndUnreadResponsesCostTime(t *testing.T) {
	c := servicetime.TCP
	require.Equal(t, c.Request+500*time.Millisecond, c.Of(codec.OpList, 0, 100_000, 0))
	require.Equal(t, c.Request+500*time.Millisecond, c.Of(codec.OpStats, 0, 100_000, 0))
	require.Equal(t, c.Request+35*time.Millisecond, c.Of(codec.OpInfo, 0, 100_000, 0))
	require.Equal(t, 35*time.Millisecond, c.OfScan(100_000))
	require.Equal(t, c.Request, c.Of(codec.OpQuery, 0, 100_000, 0))
	require.Equal(t, c.Request+1700*time.Nanosecond, c.Of(codec.OpQuery, 0, 0, 1000))
	require.Zero(t, servicetime.Costs{}.OfScan(1000))
}

func TestNilThreadDoesNothing(t *testing.T) {
	var thread *servicetime.Thread
	require.NoError(t, thread.Start(nil))
	thread.Wait()
	thread.Owe(time.Hour)
	thread.Spend(thread.Begin())
	require.Zero(t, thread.Busy())
	require.False(t, thread.Sleeps())
	require.Equal(t, 7, thread.ReadSize(7))
	thread.Close()
}

func TestThreadServesOneConnectionAfterTheOther(t *testing.T) {
	const each, rounds = 100 * time.Microsecond, 50
	thread := servicetime.New(servicetime.Spin)
	require.Equal(t, codec.MaxFrame, thread.ReadSize(1<<20))
	var all, connections sync.WaitGroup
	require.NoError(t, thread.Start(&all))
	var mu sync.Mutex
	start := time.Now()
	for range 3 {
		connections.Go(func() {
			for range rounds {
				mu.Lock()
				began := thread.Begin()
				thread.Owe(each)
				thread.Spend(began)
				mu.Unlock()
				thread.Wait()
			}
		})
	}
	connections.Wait()
	require.GreaterOrEqual(t, time.Since(start), 3*rounds*each)
	require.Equal(t, 3*rounds*each, thread.Busy())
	thread.Close()
	all.Wait()
	thread.Wait()
}

func TestSleepingThreadServesOneConnectionAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, rounds = time.Microsecond, 50
		thread := servicetime.New(servicetime.Sleep)
		require.True(t, thread.Sleeps())
		var connections sync.WaitGroup
		start := time.Now()
		for range 3 {
			connections.Go(func() {
				for range rounds {
					thread.Acquire()
					thread.Owe(each)
					thread.Spend(thread.Begin())
					thread.Release()
				}
			})
		}
		connections.Wait()
		require.Equal(t, 3*rounds*each, time.Since(start))
		require.Equal(t, 3*rounds*each, thread.Busy())
	})
}

func TestAddingThreadSpendsNoTime(t *testing.T) {
	thread := servicetime.New(servicetime.Add)
	require.NoError(t, thread.Start(nil))
	require.Equal(t, 7, thread.ReadSize(7))
	began := thread.Begin()
	thread.Owe(time.Hour)
	thread.Spend(began)
	thread.Wait()
	require.Equal(t, time.Hour, thread.Busy())
	thread.Close()
}
