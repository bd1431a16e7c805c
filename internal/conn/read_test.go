package conn

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// newDecoder returns a decoder that expects the responses to some calls.
func newDecoder(calls ...*Call) *responseDecoder {
	r := &responseDecoder{size: SizeOf(2), buf: make([]byte, readSize)}
	for _, cl := range calls {
		r.expected.push(cl)
	}
	return r
}

// feed has r decode bytes.
func feed(r *responseDecoder, p ...byte) error {
	return r.decode(copy(r.space(), p))
}

func queryCall(t *testing.T, n int) *Call {
	cl := NewCalls(SizeOf(2)).Get()
	for range n {
		require.NoError(t, Add(cl, codec.Query{Key: []byte("k")}))
	}
	return cl
}

func TestReaderMatchesResponsesInPieces(t *testing.T) {
	stream := []byte{1, 7, 0, 4, 9, 0, 0x19, 1, 2, 0, 'c', 'a', 'b', 1, 8, 0, 3, 1, 0, 0}
	want := []Response{
		{OK: true, Quota: 7, TTL: TTL{Amount: 9, Unit: codec.Seconds}},
		{OK: true, Quota: 8, TTL: TTL{Amount: 1, Unit: codec.Milliseconds}},
	}
	for size := 1; size <= len(stream); size++ {
		first, second := queryCall(t, 2), queryCall(t, 1)
		r := newDecoder(first, second)
		r.keepEvents = true
		var done []*Call
		responses, bytes, events := 0, 0, 0
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			require.NoError(t, feed(r, rest[:n]...))
			rest = rest[n:]
			done = append(done, r.done...)
			for _, e := range r.events {
				require.Equal(t, "c", string(e.Channel))
				require.Equal(t, "ab", string(e.Payload))
				events++
			}
			responses += r.responses
			bytes += r.bytes
		}
		require.Equal(t, []*Call{first, second}, done)
		require.Equal(t, want, first.Responses)
		require.Equal(t, []Response{{}}, second.Responses)
		require.Equal(t, 1, events)
		require.EqualValues(t, 4, r.frames)
		require.Equal(t, 3, responses)
		require.Equal(t, 9, bytes)
		require.False(t, r.partial())
	}
}

func TestReaderRejectsWhatCannotBeAResponse(t *testing.T) {
	for name, tt := range map[string]struct {
		response []byte
		reason   string
	}{
		"an invalid status":   {[]byte{0, 2}, ""},
		"a TTL that is large": {[]byte{1, 7, 0, 4, 61, 0}, "over 60"},
		"too many responses":  {[]byte{0, 0, 0}, "byte 0x00 came unasked"},
		"an op code":          {[]byte{byte(codec.OpQuery)}, ""},
		"text":                {[]byte("ERR unknown command"), ""},
		"an endless event":    {[]byte{0x19, 0, 0xff, 0xff}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cl := queryCall(t, 2)
			cl.MostTTL = 60
			err := feed(newDecoder(cl), tt.response...)
			require.ErrorIs(t, err, ErrProtocol)
			require.ErrorContains(t, err, tt.reason)
		})
	}
	cl := queryCall(t, 1)
	cl.MostTTL = 60
	require.NoError(t, feed(newDecoder(cl), 1, 7, 0, 4, 60, 0), "the bound itself is possible")
	cl = queryCall(t, 1)
	cl.MostTTL = 60
	require.NoError(t, feed(newDecoder(cl), 1, 7, 0, 80, 1, 0), "the unit can be anything (H19)")
	require.ErrorIs(t, feed(newDecoder(), 0), ErrProtocol)

	// What the same read has brought before is dropped.
	first := queryCall(t, 1)
	r := newDecoder(first, queryCall(t, 1))
	r.keepEvents = true
	err := feed(r, append(append(event(t, "c", "x"), 0), 0xff)...)
	require.ErrorIs(t, err, ErrProtocol)
	require.Empty(t, r.events)
	require.Equal(t, []*Call{first}, r.done)
	require.True(t, first.sent)
	require.Equal(t, err, first.err)
}

func TestReaderNoticesThatTheServerMayHaveDroppedAResponse(t *testing.T) {
	news := event(t, "c", "")
	read := func(events int, keepEvents bool, last ...byte) error {
		r := newDecoder(queryCall(t, 1))
		r.keepEvents = keepEvents
		for range events {
			require.NoError(t, feed(r, news...))
		}
		return feed(r, last...)
	}
	require.NoError(t, read(MaxOutstanding-1, false, 0))
	require.NoError(t, read(MaxOutstanding-1, false, news...))
	for _, last := range [][]byte{{0}, news} {
		err := read(MaxOutstanding, false, last...) // H4
		require.ErrorIs(t, err, ErrProtocol)
		require.ErrorContains(t, err, "may have dropped it")
		require.NoError(t, read(MaxOutstanding, true, last...), "subscribers get more EVENTs than that")
	}
}

func TestFramesBeforeACallWasWrittenDoNotCount(t *testing.T) {
	news := event(t, "c", "")
	onPipe(t, Options{}, func(t *testing.T, l link) {
		for range MaxOutstanding {
			l.send(news...)
		}
		synctest.Wait()
		cl := l.enqueue(1, queryFrame)
		l.received()
		for range MaxOutstanding - 1 {
			l.send(news...)
		}
		l.respond(1)
		l.requireDone(cl)
		require.EqualValues(t, 2*MaxOutstanding-1, l.options.Counters.Events.Load())
		require.EqualValues(t, 1, l.options.Counters.Answered.Load())
	})
}

func TestRepliesOfEachKindAreDecoded(t *testing.T) {
	cl := NewCalls(SizeOf(2)).Get()
	require.NoError(t, Add(cl, codec.Purge{Key: []byte("k")}))
	require.NoError(t, Add(cl, codec.Get{Key: []byte("k")}))
	require.NoError(t, Add(cl, codec.Get{Key: []byte("k")}))
	cl.AddFrame([]byte{byte(codec.OpWhoAmI)}, codec.WhoAmI{}.ResponseKind())
	require.False(t, cl.ReadOnly())
	id := make([]byte, 17)
	id[0], id[5] = 1, 9
	stream := append([]byte{1, 1, 4, 9, 0, 2, 0, 'h', 'i', 0}, id...)
	r := newDecoder(cl)
	require.NoError(t, feed(r, stream...))
	clear(r.buf)
	require.Len(t, r.done, 1, "responses do not alias the buffer")
	require.Equal(t, []Response{
		{OK: true},
		{OK: true, TTL: TTL{Amount: 9, Unit: codec.Seconds}, Value: []byte("hi")},
		{},
		{Value: id},
	}, cl.Responses)
}

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
