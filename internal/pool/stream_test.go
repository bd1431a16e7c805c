package pool_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
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

// listing starts a server in memory that responds to each kind of listing with some bytes.
func listing(t testing.TB, response []byte) *mockserver.Server {
	t.Helper()
	srv := testkit.InMemory(t)
	for _, op := range []codec.Op{codec.OpList, codec.OpStats, codec.OpConnections, codec.OpChannels} {
		srv.Inject(mockserver.Fault{Op: op, Replace: response})
	}
	return srv
}

// records is the response to a LIST in fragments of the given sizes.
func records(sizes ...int) codec.ListResponse[uint16] {
	var r codec.ListResponse[uint16]
	for i, n := range sizes {
		fragment := []codec.ListEntry[uint16]{}
		for j := range n {
			fragment = append(fragment, codec.ListEntry[uint16]{
				Key: fmt.Appendf(nil, "%d.%d", i, j), Unit: codec.Seconds, Expires: uint64(time.Hour), Bytes: 2,
			})
		}
		r.Fragments = append(r.Fragments, fragment)
	}
	return r
}

// encode encodes frames.
func encode(t testing.TB, frames ...codec.Frame) (b []byte) {
	t.Helper()
	for _, f := range frames {
		var err error
		b, err = f.AppendBinary(b)
		require.NoError(t, err)
	}
	return b
}

// list makes a LIST and returns the keys that came. It calls each, if not nil, for each key,
// and stops when each returns false.
func (s subject) list(ctx context.Context, each func(key string) bool) (keys []string, sent bool, err error) {
	return s.listBy(ctx, s.Stream, codec.List{}, each)
}

// listBy is list by Stream or Scan, with a request whose response is that to a LIST.
func (s subject) listBy(
	ctx context.Context, stream func(context.Context, codec.Request, pool.Decoder, func() bool) (bool, error),
	r codec.Request, each func(key string) bool,
) (keys []string, sent bool, err error) {
	var d codec.ListDecoder[uint16]
	var entries []codec.ListEntry[uint16]
	decode := func(src []byte) (n int, done bool, err error) {
		entries, n, err = d.Decode(src)
		return n, d.Done(), err
	}
	sent, err = stream(ctx, r, decode, func() (more bool) {
		for _, e := range entries {
			keys = append(keys, string(e.Key))
			if each != nil && !each(string(e.Key)) {
				return false
			}
		}
		return true
	})
	return keys, sent, err
}

// A slow caller is not taken for a server that has stalled.
func TestStreamsWaitForEachOther(t *testing.T) {
	const slow = time.Minute // more than StallTimeout
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			requests []codec.Request
			atATime  int
		}{
			{[]codec.Request{codec.Connections{}, codec.Channels{}}, 2},
			{[]codec.Request{codec.List{}, codec.Stats{}}, 1}, // H20
		} {
			srv := listing(t, encode(t, records(1000, 1000, 1000)))
			s := connect(t, to(srv), pool.Options{MaxConns: 2, HealthInterval: 1000 * time.Hour})
			start := time.Now()
			wait := s.start(10, func(i int) {
				keys, _, err := s.listBy(t.Context(), s.Stream, c.requests[i%2], func(key string) bool {
					if key == "0.0" {
						time.Sleep(slow)
					}
					return true
				})
				if err != nil || len(keys) != 3000 {
					t.Error(len(keys), err)
				}
			})
			synctest.Wait()
			require.Equal(t, 10-c.atATime, s.Stats().Acquiring)
			require.Zero(t, s.Stats().Waiting)
			require.Equal(t, 1+c.atATime, srv.Conns())
			wait()
			require.Equal(t, slow*time.Duration(10/c.atATime), time.Since(start))
			require.Zero(t, s.Stats().Acquiring)
		}
	})
}

// What a server can't send keeps its memory for good (H16, H20).
func TestAResponseIsReadToItsEndAfterItsCallerHasLeft(t *testing.T) {
	for name, leave := range map[string]func(cancel func()) bool{
		"the loop was left": func(func()) bool { return false },
		"the context has ended": func(cancel func()) bool {
			cancel()
			synctest.Wait() // until that has been noticed
			return true
		},
		"a panic": func(func()) bool { panic("out of the loop") },
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := listing(t, encode(t, records(1000, 1000)))
			srv.Split(1000)
			s := connect(t, to(srv), pool.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			func() {
				defer func() { require.Equal(t, name == "a panic", recover() != nil) }()
				keys, sent, err := s.list(ctx, func(string) bool {
					require.Equal(t, 2, srv.Conns(), "it has a connection of its own")
					require.Equal(t, 2, s.Stats().Conns)
					return leave(cancel)
				})
				require.Equal(t, ctx.Err(), err)
				require.True(t, sent)
				require.NotEmpty(t, keys)
			}()
			synctest.Wait()
			require.Zero(t, srv.Leaked())
			require.Equal(t, 1, srv.Conns())
			require.Equal(t, 1, s.Stats().Conns)
			require.Zero(t, s.Stats().Failures)
		})
	}
}

func TestAResponseThatNobodyNeedsIsNotReadForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := encode(t, records(1, 1))
		srv := listing(t, b[:len(b)-1]) // the last byte never comes
		s := connect(t, to(srv), pool.Options{StallTimeout: time.Hour, HealthInterval: time.Hour})
		for _, wait := range []time.Duration{0, 30 * time.Second} {
			start := time.Now()
			_, _, err := s.list(t.Context(), func(string) bool { return false })
			require.NoError(t, err)
			require.Equal(t, wait, time.Since(start), "the caller does not wait for the rest, and the next one does")
			require.Equal(t, 2, s.Stats().Conns)
		}
		require.Zero(t, s.Stats().Failures, "the server has done nothing wrong")
		start := time.Now()
		s.Close()
		require.Equal(t, 250*time.Millisecond, time.Since(start))
	})
}

func TestAStreamIsTheSameInWhateverPiecesItArrives(t *testing.T) {
	event := codec.Event[uint16]{Channel: []byte("*"), Payload: bytes.Repeat([]byte("x"), 5000)}
	for _, c := range []struct {
		events int // before the response
		sizes  []int
	}{
		{0, nil}, {0, []int{0}}, {0, []int{1}}, {0, []int{3, 0, 500}}, {0, []int{2000}}, {5, []int{3}},
		{0, slices.Repeat([]int{1}, 30)}, // the index of one is the op code of an EVENT
	} {
		response := records(c.sizes...)
		whole := append(encode(t, slices.Repeat([]codec.Frame{event}, c.events)...), encode(t, response, event)...)
		for _, piece := range []int{1, 7, 1000, 4999, 17 << 10, len(whole)} {
			synctest.Test(t, func(t *testing.T) {
				srv := listing(t, whole)
				srv.Split(piece)
				s := connect(t, to(srv), pool.Options{})
				keys, sent, err := s.list(t.Context(), nil)
				require.NoError(t, err)
				require.True(t, sent)
				var want []string
				for _, e := range slices.Concat(response.Fragments...) {
					want = append(want, string(e.Key))
				}
				require.Equal(t, want, keys)
				require.EqualValues(t, 3, s.Stats().Answered, "the others are those of the preparations")
				require.Contains(t, []int{c.events, c.events + 1}, int(s.Stats().Events), "the last one may not be read")
			})
		}
	}
}

// Garbage (H14) may announce what never comes. It is not waited for, as the permit for listings is needed.
func TestAPartThatCannotBeHeldIsRefusedAtOnce(t *testing.T) {
	head := func(numbers ...uint64) []byte {
		b := []byte{1}
		for _, n := range numbers {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	var d codec.ListDecoder[uint16]
	list := func(src []byte) (n int, done bool, err error) {
		_, n, err = d.Decode(src)
		return n, d.Done(), err
	}
	channel := func(src []byte) (n int, done bool, err error) {
		_, n, err = codec.DecodeChannelResponse(src)
		return n, err == nil, err
	}
	for name, c := range map[string]struct {
		request  codec.Request
		decode   pool.Decoder
		response []byte
	}{
		"entries":      {codec.List{}, list, head(3, 1, 1<<40)},
		"one too many": {codec.List{}, list, head(1, 1, (24<<10-16)/13+1)},
		"names":        {codec.List{}, list, append(head(1, 1, 1000), bytes.Repeat([]byte{0xff}, 13*1000)...)},
		"subscribers":  {codec.Channel{}, channel, head(1 << 40)},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			d = codec.ListDecoder[uint16]{}
			srv := testkit.InMemory(t)
			srv.Inject(mockserver.Fault{Op: c.request.Op(), Replace: c.response})
			s := connect(t, to(srv), pool.Options{MaxResponse: 24 << 10})
			start := time.Now()
			_, err := s.Stream(t.Context(), c.request, c.decode, func() bool { return true })
			require.ErrorIs(t, err, conn.ErrProtocol)
			require.ErrorContains(t, err, "longer than 24576 bytes")
			require.Zero(t, time.Since(start))
		})
	}
}

// A server says a part of the response, and then hangs up or is silent.
func TestAStreamThatBreaksOffIsAnErrorAfterWhatCame(t *testing.T) {
	whole := encode(t, records(2, 3))
	for cut := range whole {
		for _, hangUp := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				srv := listing(t, whole[:cut])
				s := connect(t, to(srv), pool.Options{StallTimeout: 3 * time.Second})
				failures := uint64(1)
				if hangUp {
					failures++ // and the shared connection
					time.AfterFunc(time.Second, srv.Disconnect)
				}
				start := time.Now()
				keys, sent, err := s.list(t.Context(), nil)
				require.True(t, sent)
				if hangUp {
					require.ErrorIs(t, err, conn.ErrLost)
					require.ErrorIs(t, err, map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[cut == 0])
				} else {
					require.ErrorIs(t, err, conn.ErrStalled)
					require.InDelta(t, 3.375, time.Since(start).Seconds(), 0.375, "the watchdog looks four times")
				}
				want := 0
				if cut >= 1+8+16+2*13+6 {
					want = 2
				}
				require.Len(t, keys, want, "cut at %d", cut)
				synctest.Wait()
				require.Equal(t, failures, s.Stats().Failures)
				require.Equal(t, 1, srv.Requests(codec.OpList), "a stream is never sent again")
			})
		}
	}
}

func TestTheContextEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := encode(t, records(2, 2))
		s := connect(t, to(listing(t, whole[:len(whole)-1])), pool.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i, want := range []int{2, 0} { // the second one is not sent
			keys, sent, err := s.list(ctx, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, i == 0, sent)
			require.Len(t, keys, want)
			require.EqualValues(t, 2, s.Stats().Dials)
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		keys, _, err := s.list(ctx, func(string) bool {
			cancel() // while the response is decoded
			synctest.Wait()
			return true
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, keys, 2, "what has come is decoded")
		require.EqualValues(t, 1, s.Stats().Failures, "the first response has stalled")
	})
}

// Records that expire can lock a server up, so that a sweep must not wait until a caller has taken what was listed for it.
func TestScansDoNotWaitForCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := listing(t, encode(t, records(1)))
		s := connect(t, to(srv), pool.Options{})
		begun := time.Now()
		var caller sync.WaitGroup
		caller.Go(func() {
			s.list(t.Context(), func(string) bool {
				time.Sleep(time.Hour)
				return true
			})
		})
		time.Sleep(time.Second)
		_, _, err := s.listBy(t.Context(), s.Scan, codec.List{}, nil)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(begun))
		caller.Wait()
	})
}
