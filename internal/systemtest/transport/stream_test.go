package transport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// records is a LIST's answer in fragments of the given sizes.
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

func TestAListIsTheSameInWhateverPiecesItArrives(t *testing.T) {
	for _, sizes := range [][]int{{}, {0}, {1}, {3, 0, 500}, {2000}} {
		whole := testkit.Encode(t, records(sizes...))
		for _, piece := range []int{1, 7, 1000, len(whole)} {
			f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
				_, err := io.CopyBuffer(struct{ io.Writer }{nc}, struct{ io.Reader }{bytes.NewReader(whole)}, make([]byte, piece))
				return err == nil
			}}
			client := f.Client(t, throttr.Config{})
			got, err := testkit.Collect(t, client.List(t.Context()))
			require.NoError(t, err)
			n := 0
			for _, e := range records(sizes...).Fragments {
				for _, e := range e {
					require.Equal(t, throttr.ListEntry{
						Server: throttr.DefaultServer, Key: string(e.Key), Kind: throttr.KindCounter,
						Unit: codec.Seconds, ExpiresAt: time.Unix(3600, 0).UTC(), BytesUsed: 2,
					}, got[n])
					n++
				}
			}
			require.Len(t, got, n)
		}
	}
}

func TestEventsBeforeAnAnswerAreTaken(t *testing.T) {
	event := codec.Event[uint16]{Channel: []byte("*"), Payload: bytes.Repeat([]byte("x"), 5000)}
	frames := []codec.Frame{event, event, event, event, event, records(3), event}
	client := testkit.Responding[uint16](testkit.Encode(t, frames...)).Client(t, throttr.Config{})
	got, err := testkit.Collect(t, client.List(t.Context()))
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Equal(t, uint64(5), testkit.ServerStats(client).Events)
}

func TestHostileBytesEndAnIteration(t *testing.T) {
	endless := binary.LittleEndian.AppendUint64([]byte{1}, 1<<64-1)
	wrongIndex := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{1}, 1), 9)
	wrongIndex = binary.LittleEndian.AppendUint64(wrongIndex, 1)
	wrongType := testkit.Encode(t, records(2))
	wrongType[1+8+16+13+1] = 7
	for name, answer := range map[string][]byte{
		"status":           {7},
		"failure":          {0},
		"index":            wrongIndex,
		"record type":      wrongType,
		"after a fragment": append(testkit.Encode(t, records(2, 2))[:1+8+16+2*13+6], wrongIndex[9:]...),
	} {
		t.Run(name, func(t *testing.T) {
			f := testkit.Responding[uint16](answer)
			client := f.Client(t, throttr.Config{})
			_, err := testkit.Collect(t, client.List(t.Context()))
			require.ErrorIs(t, err, throttr.ErrProtocol)
			var re *throttr.RequestError
			require.ErrorAs(t, err, &re)
			require.Equal(t, codec.OpList, re.Op)
			require.True(t, re.Sent)
		})
	}
	t.Run("more fragments than there will ever be", func(t *testing.T) {
		f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
			nc.Write(endless)
			return false
		}}
		_, err := testkit.Collect(t, f.Client(t, throttr.Config{}).List(t.Context()))
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	t.Run("more subscribers than there will ever be", func(t *testing.T) {
		f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
			io.ReadFull(nc, make([]byte, 2)) // the name
			nc.Write(endless)
			nc.Write(make([]byte, 100<<10))
			return false
		}}
		_, _, err := f.Client(t, throttr.Config{}).Channel(t.Context(), "c")
		require.ErrorIs(t, err, throttr.ErrConnLost)
	})
	t.Run("small answers", func(t *testing.T) {
		client := testkit.Responding[uint16]([]byte{7}).Client(t, throttr.Config{MaxRetries: -1})
		_, _, err := client.Stat(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrProtocol)
		_, err = client.Info(t.Context())
		require.ErrorIs(t, err, throttr.ErrProtocol)
		_, err = client.WhoAmI(t.Context())
		require.ErrorIs(t, err, throttr.ErrProtocol)
		_, err = client.Publish(t.Context(), "c", nil)
		require.ErrorIs(t, err, throttr.ErrProtocol)
		_, _, err = client.Connection(t.Context(), throttr.DefaultServer, codec.ConnID{})
		require.ErrorIs(t, err, throttr.ErrProtocol)
	})
}

func TestAnAnswerCutAtAnyByteIsAnErrorAfterWhatCame(t *testing.T) {
	whole := testkit.Encode(t, records(2, 3))
	for cut := range whole {
		f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
			nc.Write(whole[:cut])
			return false
		}}
		got, err := testkit.Collect(t, f.Client(t, throttr.Config{}).List(t.Context()))
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.ErrorIs(t, err, map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[cut == 0])
		want := 0
		if cut >= 1+8+16+2*13+6 {
			want = 2
		}
		require.Len(t, got, want, "cut at %d", cut)
	}
}

func TestLeavingALoopClosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testkit.Responding[uint16](testkit.Encode(t, records(1000, 1000)))
		client := f.Client(t, throttr.Config{})
		for range client.List(t.Context()) {
			open, _ := f.Conns()
			require.Equal(t, 2, open)
			require.Equal(t, 2, testkit.ServerStats(client).Conns)
			break
		}
		synctest.Wait()
		open, _ := f.Conns()
		require.Equal(t, 1, open)
		require.Equal(t, 1, testkit.ServerStats(client).Conns)

		func() { // a loop can also be left so
			defer func() { require.NotNil(t, recover()) }()
			for range client.List(t.Context()) {
				panic("left")
			}
		}()
		synctest.Wait()
		open, _ = f.Conns()
		require.Equal(t, 1, open)
	})
}

func TestALoopThatTakesItsTimeIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.Responding[uint16](testkit.Encode(t, records(1000, 1000, 1000))).Client(t, throttr.Config{})
		n := 0
		for _, err := range client.List(t.Context()) {
			require.NoError(t, err)
			n++
			time.Sleep(time.Minute)
		}
		require.Equal(t, 3000, n)
	})
}

func TestASilentServerEndsAnIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := testkit.Encode(t, records(2, 2))
		for _, until := range []int{0, 1, 100, len(whole) - 1} {
			f := testkit.Responding[uint16](whole[:until])
			client := f.Client(t, throttr.Config{StallTimeout: 3 * time.Second})
			start := time.Now()
			_, err := testkit.Collect(t, client.List(t.Context()))
			require.ErrorIs(t, err, throttr.ErrStalled)
			require.Equal(t, 3*time.Second, time.Since(start))
			client.Close()
			f.Wait()
		}
	})
}

func TestTheContextEndsAnIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := testkit.Encode(t, records(2, 2))
		client := testkit.Responding[uint16](whole[:len(whole)-1]).Client(t, throttr.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		got, err := testkit.Collect(t, client.List(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, throttr.Timeout(err))
		require.Len(t, got, 2)
		require.Equal(t, time.Second, time.Since(start))

		got, err = testkit.Collect(t, client.List(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, throttr.SafeToRetry(err))
		require.Empty(t, got)

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		got = nil
		for e, err := range client.List(ctx) {
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				break
			}
			got = append(got, e)
			cancel() // within the loop
			synctest.Wait()
		}
		require.Len(t, got, 2, "what has come is yielded")
	})
}

func TestCloseEndsIterations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testkit.Responding[uint16](testkit.Encode(t, records(2, 2000)))
		client := f.Client(t, throttr.Config{})
		var last error
		for _, err := range client.List(t.Context()) {
			last = err
			client.Close() // does not wait for the loop that it is called from
			f.Wait()
		}
		require.ErrorIs(t, last, throttr.ErrClosed)
		_, err := testkit.Collect(t, client.List(t.Context()))
		require.ErrorIs(t, err, throttr.ErrClosed)
		_, _, err = client.Channel(t.Context(), "c")
		require.ErrorIs(t, err, throttr.ErrClosed)
	})
}

func TestIterationsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testkit.Responding[uint16](testkit.Encode(t, records(1000)))
		client := f.Client(t, throttr.Config{MaxConns: 2})
		results := make(chan error)
		for range 10 {
			go func() {
				n := 0
				for _, err := range client.List(t.Context()) {
					if err != nil {
						results <- err
						return
					}
					if n++; n == 1 {
						time.Sleep(time.Second)
					}
				}
				results <- nil
			}()
		}
		start := time.Now()
		for range 10 {
			require.NoError(t, <-results)
		}
		require.Equal(t, 5*time.Second, time.Since(start), "two at a time")
		_, most := f.Conns()
		require.Equal(t, 1+2, most)

		for range client.List(t.Context()) {
			for range client.List(t.Context()) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := testkit.Collect(t, client.List(ctx))
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, throttr.SafeToRetry(err))
				break
			}
			break
		}
	})
}

func TestAServerThatFailsDoesNotHideTheOthers(t *testing.T) {
	good, bad := testkit.Responding[uint16](testkit.Encode(t, records(2))), testkit.Responding[uint16]([]byte{7})
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "bad") {
			return bad.Dial(ctx, network, addr)
		}
		return good.Dial(ctx, network, addr)
	}
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
		Servers: []string{"good:1", "bad:1", "good:2", "bad:2"}, Dial: dial,
	})
	require.NoError(t, err)
	defer client.Close()
	got, err := testkit.Collect(t, client.List(t.Context()))
	require.ErrorIs(t, err, throttr.ErrProtocol)
	servers := []string{}
	for _, e := range got {
		servers = append(servers, e.Server)
	}
	require.Equal(t, []string{"good:1", "good:1", "good:2", "good:2"}, servers)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	for i, err := range joined.Unwrap() {
		var re *throttr.RequestError
		require.True(t, errors.As(err, &re))
		require.Equal(t, []string{"bad:1", "bad:2"}[i], re.Server)
	}
}
