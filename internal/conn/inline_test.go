package conn

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newLone returns a connection over TCP whose reader goroutine has released the read side,
// and the number of inline reads so far. Only there, callers read their own responses.
func newLone(t *testing.T, o Options) (link, uint64) {
	t.Helper()
	ours, theirs := tcpPair(t)
	l := newLink(t, ours, theirs, o)
	for l.inlineReads() == 0 {
		l.roundTrip(t.Context())
	}
	return l, l.inlineReads()
}

// inlineReads returns how many callers have read their responses themselves.
func (l link) inlineReads() uint64 { return l.readTurn.taken.Load() }

// roundTrip makes a QUERY, which the server answers.
func (l link) roundTrip(ctx context.Context) {
	l.Helper()
	responded := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(l.server, make([]byte, queryFrame))
		if err == nil {
			_, err = l.server.Write([]byte{0})
		}
		responded <- err
	}()
	_, _, err := l.query(ctx)
	require.NoError(l, err)
	require.NoError(l, <-responded)
}

// read reads n requests.
func (l link) read(n int) {
	l.Helper()
	_, err := io.ReadFull(l.server, make([]byte, n*queryFrame))
	require.NoError(l, err)
}

// eventually requires that something becomes true.
func (l link) eventually(f func() bool) {
	l.Helper()
	require.Eventually(l, f, 5*time.Second, 100*time.Microsecond)
}

func TestInlineReaderReturnsWhenItsContextEnds(t *testing.T) {
	l, inline := newLone(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		done, sent bool
		err        error
	}
	got := make(chan result)
	go func() {
		var r result
		r.done, r.sent, r.err = l.query(ctx)
		got <- r
	}()
	l.read(1)
	require.LessOrEqual(t, inline, l.inlineReads())
	cancel()
	require.Equal(t, result{false, true, context.Canceled}, <-got)

	// The response of the canceled call is dropped, and the next call gets its own.
	l.send(0)
	cl := l.call(1, queryFrame)
	require.NoError(t, l.Enqueue(cl))
	go func() {
		l.server.Read(make([]byte, queryFrame))
		l.server.Write([]byte{1, 9, 0, 4, 1, 0})
	}()
	_, err := l.outcome(cl)
	require.NoError(t, err)
	require.EqualValues(t, 9, cl.Responses[0].Quota)
	l.eventually(func() bool { return l.Load().Calls == 0 })
	l.roundTrip(t.Context())
	require.NoError(t, l.Err())
}

func TestPartOfAFrameIsKeptWhenTheReaderChanges(t *testing.T) {
	news := event(t, "news", "0123456789")
	for cut := 1; cut < len(news); cut++ {
		l, _ := newLone(t, Options{})
		events := &l.options.Counters.Events
		// The inline reader receives its response and a part of an EVENT.
		cl := l.call(1, queryFrame)
		require.NoError(t, l.Enqueue(cl))
		l.read(1)
		l.send(append([]byte{0}, news[:cut]...)...)
		_, err := l.outcome(cl)
		require.NoError(t, err)
		require.Equal(t, readGoroutine, l.readTurn.owner.Load(), "the rest of the EVENT is due")
		if cut%2 == 0 {
			time.Sleep(time.Millisecond) // the next caller checks the connection
		}
		// The next caller may come before or after the rest of the EVENT.
		cl = l.call(1, queryFrame)
		if cut%3 == 0 {
			l.send(news[cut:]...)
		}
		require.NoError(t, l.Enqueue(cl))
		if cut%3 != 0 {
			l.send(news[cut:]...)
		}
		l.send(1, 9, 0, 4, 1, 0)
		_, err = l.outcome(cl)
		require.NoError(t, err)
		require.EqualValues(t, 9, cl.Responses[0].Quota)
		require.EqualValues(t, 1, events.Load())
	}
}

func TestCallerNoticesThatTheConnectionEndedWhileNobodyRead(t *testing.T) {
	for range 20 {
		l, _ := newLone(t, Options{})
		l.server.Close()
		time.Sleep(2 * time.Millisecond) // more than checkOpenInterval, less than inlineIdle
		_, sent, err := l.query(t.Context())
		require.Error(t, err)
		require.False(t, sent, "the call can be sent again on another connection")
	}
}

// What ends a connection is noticed though there is no call, and nobody reads.
func TestAConnectionEndsWhileNobodyReads(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l link)
		want error
	}{
		"the server hangs up": {func(l link) { l.server.Close() }, ErrLost},
		"an unexpected byte":  {func(l link) { l.send(1) }, ErrProtocol},
		"Cut":                 {func(l link) { l.Cut(ErrStale) }, ErrStale},
		"Retire":              {func(l link) { l.Retire() }, ErrGone},
		"Close":               {func(l link) { l.Close(errTest) }, errTest},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLone(t, Options{})
			c.end(l)
			<-l.Done()
			require.ErrorIs(t, l.Err(), c.want)
			requireNoGoroutines(t)
		})
	}
}
