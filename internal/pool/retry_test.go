package pool_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// A call on a connection that is lost is sent again if it was not sent or only reads.
//
//evidence:client Only what was not sent or only reads is sent again
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
		{"a read and a write that were sent", []codec.Request{query, update}, false, false},
		{"a read that was not sent", []codec.Request{query}, true, true},
		{"a write that was not sent", []codec.Request{update}, true, true},
		{"a read and a write that were not sent", []codec.Request{query, update}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				srv.Set("k", 1, time.Minute)
				s := connect(t, to(srv), pool.Options[uint16]{MaxConns: 1, MaxInFlight: 1})
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
					if err == nil && len(cl.Replies) != len(c.call) {
						t.Errorf("%d replies", len(cl.Replies))
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
		})
	}
}

func TestReadsSurviveARestartAndWritesAreExecutedAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		const callers = 50
		srv.Set("k", 5, time.Minute)
		for i := range callers {
			srv.Set(fmt.Sprint(i), 0, time.Minute)
		}
		s := connect(t, to(srv), pool.Options[uint16]{MaxConns: 2})
		srv.Inject(mockserver.Fault{Delay: time.Millisecond, Times: 200})
		waitReads := s.start(callers, func(int) {
			if r := s.query(t.Context(), "k"); r.err != nil || r.reply.Quota != 5 {
				t.Errorf("QUERY: %+v", r)
			}
		})
		waitWrites := s.start(callers, func(i int) {
			r := s.do(t.Context(), codec.Update[uint16]{Key: fmt.Append(nil, i), Change: codec.Increase, Value: 1})
			if r.err == nil || !r.sent {
				t.Errorf("UPDATE: %+v", r)
			}
		})
		synctest.Wait()
		require.NoError(t, srv.Restart(true))
		waitReads()
		waitWrites()
		for i := range callers {
			quota, ok := srv.Counter(fmt.Sprint(i))
			require.True(t, ok)
			require.LessOrEqual(t, quota, uint64(1))
		}
		require.Positive(t, s.Stats().Retries)
	})
}

//evidence:bounds Times a request is sent again
func TestACallIsSentAgainMaxRetriesTimes(t *testing.T) {
	for _, c := range []struct{ max, sent int }{{-1, 1}, {1, 2}, {5, 6}} {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t)
			s := connect(t, to(srv), pool.Options[uint16]{MaxRetries: c.max})
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true})
			r := s.query(t.Context(), "k")
			require.ErrorIs(t, r.err, conn.ErrLost)
			require.True(t, r.sent)
			require.Equal(t, c.sent, s.queries(srv))
			require.EqualValues(t, c.sent-1, s.Stats().Retries)
		})
	}
}

func TestAStaleCallIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{})
		cl := s.calls.Get()
		require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
		cl.Stale = func() bool { return true }
		done, sent, err := s.Do(t.Context(), cl)
		require.True(t, done)
		require.False(t, sent)
		require.ErrorIs(t, err, conn.ErrStale)
		require.Zero(t, s.Stats().Retries)
		require.Zero(t, s.queries(srv))
	})
}

// A read that was under way when its server went away fails as soon as the server can't be
// reached.
func TestReadsFailSoonIfTheServerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{srv: inMemory(t)}
		s := connect(t, g.dial, pool.Options[uint16]{MaxRetries: 100})
		g.srv.Inject(mockserver.Fault{Delay: time.Second})
		done := s.start(40, func(int) { // too few to open another connection
			r := s.query(t.Context(), "k")
			if !errors.Is(r.err, errGate) || !errors.Is(r.err, conn.ErrLost) || !r.sent {
				t.Errorf("QUERY: %+v", r)
			}
		})
		synctest.Wait()
		g.fail.Store(true)
		start := time.Now()
		g.srv.Disconnect()
		done()
		require.Zero(t, time.Since(start))
		require.EqualValues(t, 2, s.Stats().Dials, "one attempt for all")
	})
}

// Two calls of one caller, such as the parts of a batch, can be on their way at once.
func TestSendAndWaitAreTheTwoStepsOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{})
		srv.Set("a", 1, time.Minute)
		srv.Set("b", 2, time.Minute)
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second, Times: 1})
		var calls [2]*conn.Call[uint16]
		for i, key := range []string{"a", "b"} {
			calls[i] = s.calls.Get()
			require.NoError(t, conn.Add(calls[i], codec.Query{Key: []byte(key)}))
			require.NoError(t, s.Send(t.Context(), calls[i]))
		}
		start := time.Now()
		for i, cl := range calls {
			done, _, err := s.Wait(t.Context(), cl)
			require.NoError(t, err)
			require.True(t, done)
			require.EqualValues(t, i+1, cl.Replies[0].Quota)
			s.calls.Put(cl)
		}
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestACanceledCallIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{MaxConns: 1, MaxInFlight: 1})
		slow := srv.Inject(mockserver.Fault{Delay: time.Minute})
		probe := srv.Requests(codec.OpPurge)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wait := s.start(2, func(i int) {
			time.Sleep(time.Duration(i)) // one after the other
			cl := s.calls.Get()
			if err := conn.Add(cl, codec.Purge{Key: []byte("k")}); err != nil {
				t.Error(err)
			}
			done, sent, err := s.Do(ctx, cl)
			if done || sent != (i == 0) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d: %v %v %v", i, done, sent, err)
			}
		})
		wait()
		cl := s.calls.Get()
		require.NoError(t, conn.Add(cl, codec.Purge{Key: []byte("k")}))
		done, sent, err := s.Do(ctx, cl)
		require.True(t, done, "it was never queued")
		require.False(t, sent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, s.Send(ctx, cl), context.DeadlineExceeded)
		slow()
		require.Equal(t, 1, srv.Requests(codec.OpPurge)-probe)
	})
}

//evidence:bounds The wait for a byte of a response
func TestAServerThatNeverRespondsIsGivenUp(t *testing.T) {
	for _, timeout := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		// The watchdog may have run just before.
		for _, before := range []time.Duration{0, timeout / 8, timeout / 4, timeout * 3 / 8} {
			t.Run(fmt.Sprint(timeout, " after ", before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := inMemory(t)
					s := connect(t, to(srv), pool.Options[uint16]{StallTimeout: timeout})
					require.NoError(t, s.query(t.Context(), "k").err)
					time.Sleep(before)
					remove := srv.Inject(mockserver.Fault{Drop: true})
					start := time.Now()
					r := s.purge(t.Context(), "k")
					took := time.Since(start)
					require.ErrorIs(t, r.err, conn.ErrStalled)
					require.True(t, r.sent)
					require.GreaterOrEqual(t, took, timeout)
					require.LessOrEqual(t, took, timeout*5/4)

					remove()
					require.NoError(t, s.query(t.Context(), "k").err, "on a new connection")
					synctest.Wait()
					require.EqualValues(t, 2, s.Stats().Dials)
					require.EqualValues(t, 1, s.Stats().Failures)
				})
			})
		}
	}
}

func TestAStallFailsAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{MaxConns: 1, MaxInFlight: 4, MaxRetries: -1, StallTimeout: time.Second})
		defer srv.Inject(mockserver.Fault{Op: codec.OpPurge, Drop: true})()
		results := make([]result, 10)
		s.inParallel(len(results), func(i int) { results[i] = s.purge(t.Context(), "k") })
		unsent := 0
		for _, r := range results {
			require.ErrorIs(t, r.err, conn.ErrStalled)
			if !r.sent {
				unsent++
			}
		}
		require.Equal(t, 6, unsent)
	})
}

func TestASlowServerIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{StallTimeout: time.Second})
		srv.Inject(mockserver.Fault{Delay: 990 * time.Millisecond})
		for range 20 {
			require.NoError(t, s.query(t.Context(), "k").err)
		}
		require.EqualValues(t, 1, s.Stats().Dials)
	})
}

func TestAnIdleConnectionDoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, to(inMemory(t)), pool.Options[uint16]{StallTimeout: time.Second, HealthInterval: time.Hour})
		for range 3 {
			require.NoError(t, s.query(t.Context(), "k").err)
			time.Sleep(time.Minute)
		}
		require.EqualValues(t, 1, s.Stats().Dials)
	})
}

// A server that has locked up accepts connections and requests, and responds to none (H12).
//
//evidence:outages A server that has locked up is noticed (H12)
func TestALockedServerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := mockserver.Start(mockserver.WithAddr("memory", "memory:1"), // not RunT: a lock-up is a violation
			mockserver.WithVirtualClock(), mockserver.WithRealCollector())
		require.NoError(t, err)
		t.Cleanup(func() { srv.Close() })
		s := connect(t, to(srv), pool.Options[uint16]{
			MaxRetries: -1, StallTimeout: time.Second, Dialer: &dial.Dialer{Timeout: 2 * time.Second},
		})
		srv.Set("b", 1, time.Second+20*time.Microsecond)
		srv.Set("a", 1, time.Second)
		srv.Advance(time.Minute)
		require.ErrorIs(t, s.query(t.Context(), "k").err, conn.ErrStalled)
		require.True(t, srv.LockedUp())

		start := time.Now()
		r := s.query(t.Context(), "k")
		require.ErrorIs(t, r.err, dial.ErrConnect, "the probe has no response")
		require.False(t, r.sent)
		require.Equal(t, 2*time.Second, time.Since(start))

		require.NoError(t, srv.Restart(false))
		time.Sleep(5 * time.Second) // the pool tries again
		require.NoError(t, s.query(t.Context(), "k").err)
	})
}

// deaf is a connection whose other end reads nothing after the handshake.
type deaf struct {
	net.Conn
	writes int // two make the handshake
	closed chan struct{}
	once   *sync.Once
}

func newDeaf(nc net.Conn) net.Conn {
	return &deaf{Conn: nc, closed: make(chan struct{}), once: new(sync.Once)}
}

func (d *deaf) Write(p []byte) (int, error) {
	if d.writes++; d.writes <= 2 {
		return d.Conn.Write(p)
	}
	<-d.closed
	return 0, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

func TestAServerThatReadsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return newDeaf(nc), err
		}, pool.Options[uint16]{MaxRetries: -1, StallTimeout: time.Second})
		r := s.purge(t.Context(), "k")
		require.ErrorIs(t, r.err, conn.ErrStalled)
		require.False(t, r.sent, "no byte was accepted")
	})
}

func TestADeadlineEndsTheWaitForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{})
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Drop: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		r := s.query(ctx, "k")
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.NotErrorIs(t, r.err, conn.ErrStalled)
		require.True(t, r.sent)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// The context ends while a lost request waits for another connection: the error is both.
func TestADeadlineEndsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{srv: inMemory(t)}
		s := connect(t, g.dial, pool.Options[uint16]{})
		g.hang.Store(true)
		g.srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		r := s.query(ctx, "k")
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.ErrorIs(t, r.err, conn.ErrLost)
		require.True(t, r.sent)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAStalledReadIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		srv.Set("k", 5, time.Minute)
		s := connect(t, to(srv), pool.Options[uint16]{StallTimeout: time.Second, MaxRetries: 1})
		remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Drop: true, Times: 1})
		r := s.query(t.Context(), "k")
		require.NoError(t, r.err)
		require.EqualValues(t, 5, r.reply.Quota)
		remove()
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Drop: true})
		require.ErrorIs(t, s.query(t.Context(), "k").err, conn.ErrStalled)
		require.Equal(t, 4, s.queries(srv))
		require.EqualValues(t, 2, s.Stats().Retries)
	})
}

func TestCloseIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, to(srv), pool.Options[uint16]{})
		srv.Inject(mockserver.Fault{Delay: time.Hour})
		wait := s.start(1, func(int) {
			if r := s.query(t.Context(), "k"); r.err != window.ErrClosed || !r.sent {
				t.Errorf("QUERY: %+v", r)
			}
		})
		synctest.Wait()
		s.Close()
		wait()
		require.Zero(t, s.Stats().Retries)
	})
}

// Sent is about all attempts, not only the last.
func TestACallThatWasSentOnceMayHaveBeenExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		dials := 0
		s := connect(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			if dials++; dials > 1 {
				nc = newDeaf(nc)
			}
			return nc, err
		}, pool.Options[uint16]{MaxRetries: 1, StallTimeout: time.Second})
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true, Times: 1})
		r := s.query(t.Context(), "k")
		require.ErrorIs(t, r.err, conn.ErrStalled, "the second attempt")
		require.True(t, r.sent)
		require.Equal(t, 1, s.queries(srv))
	})
}
