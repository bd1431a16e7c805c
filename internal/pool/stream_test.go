package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
)

// script is a server whose bytes the test chooses. It answers the probe and then calls respond
// for each request, after it has read the request's op. It hangs up if respond returns false.
type script struct {
	respond func(op codec.Op, nc net.Conn) bool

	mu    sync.Mutex
	open  int
	most  int // connections that were open at the same time
	conns sync.WaitGroup
}

// says returns a script that responds to every request with the same bytes.
func says(response []byte) *script { return saysIn(len(response), response) }

// saysIn is says in pieces of some bytes.
func saysIn(piece int, response []byte) *script {
	return &script{respond: func(_ codec.Op, nc net.Conn) bool {
		for p := range slices.Chunk(response, max(1, piece)) {
			if _, err := nc.Write(p); err != nil {
				return false
			}
		}
		return true
	}}
}

func (f *script) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.open++
	f.most = max(f.most, f.open)
	f.mu.Unlock()
	f.conns.Go(func() { f.serve(theirs) })
	return &observed{Conn: ours, onClose: func() {
		f.mu.Lock()
		f.open--
		f.mu.Unlock()
	}}, nil
}

// observed calls onClose when it is closed for the first time.
type observed struct {
	net.Conn
	once    sync.Once
	onClose func()
}

func (c *observed) Close() error {
	c.once.Do(c.onClose)
	return c.Conn.Close()
}

func (f *script) serve(nc net.Conn) {
	defer nc.Close()
	if testkit.Handshake(nc, 2) != nil {
		return
	}
	op := make([]byte, 1)
	for {
		if _, err := io.ReadFull(nc, op); err != nil || !f.respond(codec.Op(op[0]), nc) {
			return
		}
	}
}

// counts returns how many connections are open, and how many were at most.
func (f *script) counts() (open, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, f.most
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
	return s.listAs(ctx, codec.List{}, each)
}

// listAs is list with a request whose response is that to a LIST.
func (s subject) listAs(ctx context.Context, r codec.Request, each func(key string) bool) (keys []string, sent bool, err error) {
	var d codec.ListDecoder[uint16]
	sent, err = s.Stream(ctx, r, func(src []byte, left bool) (int, bool, error) {
		entries, n, err := d.Decode(src)
		if left {
			return n, d.Done(), err
		}
		for _, e := range entries {
			keys = append(keys, string(e.Key))
			if each != nil && !each(string(e.Key)) {
				return n, d.Done(), pool.ErrLeft
			}
		}
		return n, d.Done(), err
	})
	return keys, sent, err
}

func TestASlowDecoderIsNotAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, says(encode(t, records(1000, 1000, 1000))).dial, pool.Options{HealthInterval: 1000 * time.Hour})
		keys, _, err := s.list(t.Context(), func(string) bool {
			time.Sleep(time.Minute)
			return true
		})
		require.NoError(t, err)
		require.Len(t, keys, 3000)
	})
}

func TestAServerThatDoesNotReadEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		s := connect(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return newDeaf(nc), err
		}, pool.Options{StallTimeout: 3 * time.Second})
		start := time.Now()
		_, sent, err := s.list(t.Context(), nil)
		require.ErrorIs(t, err, conn.ErrStalled)
		require.False(t, sent, "no byte was accepted")
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestStreamsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			requests []codec.Request
			atATime  int
		}{
			{[]codec.Request{codec.Connections{}, codec.Channels{}}, 2},
			{[]codec.Request{codec.List{}, codec.Stats{}}, 1}, // H20
		} {
			f := says(encode(t, records(1000)))
			s := connect(t, f.dial, pool.Options{MaxConns: 2})
			start := time.Now()
			wait := s.start(10, func(i int) {
				_, _, err := s.listAs(t.Context(), c.requests[i%2], func(key string) bool {
					if key == "0.0" {
						time.Sleep(time.Second)
					}
					return true
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			require.Equal(t, 10-c.atATime, s.Stats().Acquiring)
			require.Zero(t, s.Stats().Queued)
			wait()
			require.Equal(t, time.Duration(10/c.atATime)*time.Second, time.Since(start))
			_, most := f.counts()
			require.Equal(t, 1+c.atATime, most)
			require.Zero(t, s.Stats().Acquiring)
		}
	})
}

// What a server can't send keeps its memory for good (H16, H20).
func TestAResponseIsReadToItsEndAfterItsCallerHasLeft(t *testing.T) {
	for name, leave := range map[string]func(cancel func()) bool{
		"the loop was left":     func(func()) bool { return false },
		"the context has ended": func(cancel func()) bool { cancel(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole := encode(t, records(2, 2))
				var mu sync.Mutex // guards failed
				var failed error
				f := &script{respond: func(_ codec.Op, nc net.Conn) bool {
					_, first := nc.Write(whole[:len(whole)-1]) // the first fragment, and a part of the second
					time.Sleep(time.Second)
					_, second := nc.Write(whole[len(whole)-1:])
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, first, second)
					return true
				}}
				s := connect(t, f.dial, pool.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				start := time.Now()
				keys, sent, err := s.list(ctx, func(string) bool { return leave(cancel) })
				require.Equal(t, ctx.Err(), err)
				require.True(t, sent)
				require.NotEmpty(t, keys)
				require.Zero(t, time.Since(start), "the caller does not wait")
				keys, _, err = s.list(t.Context(), nil)
				require.NoError(t, err)
				require.Len(t, keys, 4)
				require.Equal(t, 2*time.Second, time.Since(start), "the next one does")
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.NoError(t, failed)
				require.Zero(t, s.Stats().Failures)
			})
		})
	}
}

func TestAResponseThatNobodyNeedsIsNotReadForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{respond: func(_ codec.Op, nc net.Conn) bool {
			b := encode(t, records(1, 1))
			b = b[:len(b)-1] // the name of the last record is still to come
			b[len(b)-2-13] = 255
			for {
				if _, err := nc.Write(b); err != nil {
					return false
				}
				time.Sleep(time.Second)
				b = []byte("x")
			}
		}}
		s := connect(t, f.dial, pool.Options{HealthInterval: time.Hour, MaxConns: 1})
		_, _, err := s.list(t.Context(), func(string) bool { return false })
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		require.Equal(t, 2, s.Stats().Conns)
		time.Sleep(11 * time.Second)
		require.Equal(t, 1, s.Stats().Conns)
		require.Zero(t, s.Stats().Failures, "the server has done nothing wrong")

		_, _, err = s.list(t.Context(), func(string) bool { return false })
		require.NoError(t, err)
		start := time.Now()
		s.Close()
		require.Equal(t, 250*time.Millisecond, time.Since(start))
		f.conns.Wait()
	})
}

func TestAStreamIsTheSameInWhateverPiecesItArrives(t *testing.T) {
	event := codec.Event[uint16]{Channel: []byte("*"), Payload: bytes.Repeat([]byte("x"), 5000)}
	for _, c := range []struct {
		events int // before the response
		sizes  []int
	}{{0, nil}, {0, []int{0}}, {0, []int{1}}, {0, []int{3, 0, 500}}, {0, []int{2000}}, {5, []int{3}}} {
		response := records(c.sizes...)
		whole := append(encode(t, slices.Repeat([]codec.Frame{event}, c.events)...), encode(t, response, event)...)
		for _, piece := range []int{1, 7, 1000, 4999, 17 << 10, len(whole)} {
			synctest.Test(t, func(t *testing.T) {
				s := connect(t, saysIn(piece, whole).dial, pool.Options{})
				keys, sent, err := s.list(t.Context(), nil)
				require.NoError(t, err)
				require.True(t, sent)
				var want []string
				for _, e := range slices.Concat(response.Fragments...) {
					want = append(want, string(e.Key))
				}
				require.Equal(t, want, keys)
				require.EqualValues(t, 1, s.Stats().Answered)
				require.EqualValues(t, c.events, s.Stats().Events)
			})
		}
	}
}

// A server says a part of the response, and then hangs up or is silent.
func TestAStreamThatBreaksOffIsAnErrorAfterWhatCame(t *testing.T) {
	whole := encode(t, records(2, 3))
	for cut := range whole {
		for _, hangUp := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				f := &script{respond: func(_ codec.Op, nc net.Conn) bool {
					nc.Write(whole[:cut])
					return !hangUp
				}}
				s := connect(t, f.dial, pool.Options{StallTimeout: 3 * time.Second})
				start := time.Now()
				keys, sent, err := s.list(t.Context(), nil)
				require.True(t, sent)
				if hangUp {
					require.ErrorIs(t, err, conn.ErrLost)
					require.ErrorIs(t, err, map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[cut == 0])
				} else {
					require.ErrorIs(t, err, conn.ErrStalled)
					require.Equal(t, 3*time.Second, time.Since(start))
				}
				want := 0
				if cut >= 1+8+16+2*13+6 {
					want = 2
				}
				require.Len(t, keys, want, "cut at %d", cut)
				require.EqualValues(t, 1, s.Stats().Failures)
				_, most := f.counts()
				require.Equal(t, 2, most, "a stream is never sent again")
			})
		}
	}
}

func TestAStreamHasAConnectionOfItsOwnWhichIsClosedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := says(encode(t, records(1000, 1000)))
		s := connect(t, f.dial, pool.Options{})
		conns := func(n int) {
			open, _ := f.counts()
			require.Equal(t, n, open)
			require.Equal(t, n, s.Stats().Conns)
		}
		_, _, err := s.list(t.Context(), func(string) bool {
			conns(2)
			return false
		})
		require.NoError(t, err)
		synctest.Wait()
		conns(1)
		require.Panics(t, func() {
			s.list(t.Context(), func(string) bool { panic("out of the decoder") })
		})
		synctest.Wait()
		conns(1)
	})
}

func TestTheContextEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := encode(t, records(2, 2))
		s := connect(t, says(whole[:len(whole)-1]).dial, pool.Options{})
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
