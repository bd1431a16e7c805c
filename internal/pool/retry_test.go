package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// A call on a connection that is lost is sent again if it was not sent or only reads.
func TestWhichCallsAreSentAgain(t *testing.T) {
	query, update := codec.Query{Key: []byte("k")}, codec.Update[uint16]{Key: []byte("k"), Change: codec.Increase, Value: 1}
	for _, c := range []struct {
		name   string
		call   []codec.Request
		queued bool // behind another call, when the connection is lost
		again  bool
	}{
		{"a read that was sent", []codec.Request{query, query}, false, true},
		{"a write that was sent", []codec.Request{update}, false, false},
		{"inspections that were sent", []codec.Request{codec.Stat{Key: []byte("k")}, codec.Info{}, codec.WhoAmI{}}, false, true},
		{"a message that was sent", []codec.Request{codec.Publish[uint16]{Channel: []byte("c")}}, false, false},
		{"a read and a write that were sent", []codec.Request{query, update}, false, false},
		{"a read that was not sent", []codec.Request{query}, true, true},
		{"a write that was not sent", []codec.Request{update}, true, true},
		{"a read and a write that were not sent", []codec.Request{query, update}, true, true},
	} {
		testkit.Bubble(t, c.name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			srv.Set("k", 1, time.Minute)
			s := connect(t, to(srv), pool.Options{MaxConns: 1, MaxInFlight: 1})
			slow := srv.Inject(mockserver.Fault{Delay: time.Hour})
			var callers sync.WaitGroup
			if c.queued {
				callers.Go(func() {
					if r := s.purge(t.Context(), "other"); r.err == nil || !r.sent {
						t.Errorf("PURGE: %+v", r)
					}
				})
				synctest.Wait()
			}
			var sent bool
			var err error
			callers.Go(func() {
				cl := s.calls.Get()
				for _, r := range c.call {
					if err := conn.Add(cl, r); err != nil {
						t.Error(err)
					}
				}
				_, sent, err = s.Do(t.Context(), cl)
				if err == nil && len(cl.Responses) != len(c.call) {
					t.Errorf("%d responses", len(cl.Responses))
				}
			})
			synctest.Wait()
			slow()
			srv.Disconnect()
			callers.Wait()
			quota, _ := srv.Counter("k")
			if c.again {
				require.NoError(t, err)
				require.EqualValues(t, 1, s.Stats().Retries)
			} else {
				require.ErrorIs(t, err, conn.ErrLost)
				require.True(t, sent)
				require.Zero(t, s.Stats().Retries)
			}
			updates := srv.Requests(codec.OpUpdate)
			require.EqualValues(t, 1+updates, quota)
			require.LessOrEqual(t, updates, 1)
		})
	}
}

// A call that is not queued still belongs to its caller.
func TestACallThatIsTooLateIsNotSent(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for want, ctx := range map[error]context.Context{conn.ErrStale: t.Context(), context.Canceled: canceled} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			s := connect(t, to(srv), pool.Options{})
			cl := s.calls.Get()
			require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
			cl.Stale = func() bool { return true }
			done, sent, err := s.Do(ctx, cl)
			require.True(t, done)
			require.False(t, sent)
			require.ErrorIs(t, err, want)
			require.Zero(t, s.Stats().Retries)
			require.Zero(t, s.queries(srv))
		})
	}
}

// Reads are under way when the connection is lost, and can't be sent again. The error is both.
func TestARetryEndsWithoutAServer(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(g *gate)
		want  error
		took  time.Duration
	}{
		"it is gone":            {func(g *gate) { g.fail.Store(true) }, errGate, 0},
		"their context is over": {func(g *gate) { g.hang.Store(true) }, context.DeadlineExceeded, time.Second},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			g := &gate{srv: testkit.InMemory(t)}
			s := connect(t, g.dial, pool.Options{MaxRetries: 100})
			g.srv.Inject(mockserver.Fault{Delay: time.Hour})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			done := s.start(40, func(int) { // too few to open another connection
				r := s.query(ctx, "k")
				if !errors.Is(r.err, c.want) || !errors.Is(r.err, conn.ErrLost) || !r.sent {
					t.Errorf("QUERY: %+v", r)
				}
			})
			time.Sleep(time.Second)
			c.leave(g)
			start := time.Now()
			g.srv.Disconnect()
			done()
			require.Equal(t, c.took, time.Since(start))
			require.EqualValues(t, 2, s.Stats().Dials, "one attempt for all")
		})
	}
}

// Sent is about all attempts, not only the last.
func TestACallThatWasSentOnceMayHaveBeenExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{})
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true, Times: 1})
		cl := s.calls.Get()
		require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
		attempts := 0
		cl.Stale = func() bool { attempts++; return attempts == 2 }
		_, sent, err := s.Do(t.Context(), cl)
		require.ErrorIs(t, err, conn.ErrStale, "the second attempt")
		require.True(t, sent)
		require.Equal(t, 1, s.queries(srv))
	})
}
