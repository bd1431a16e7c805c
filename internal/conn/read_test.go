package conn

import (
	"testing"
	"testing/synctest"

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
