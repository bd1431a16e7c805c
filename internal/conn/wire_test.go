package conn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// The layouts are those of the protocol document, with values of each size.
func TestFramesHaveValuesOfTheSize(t *testing.T) {
	for _, bytesOf := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprint(bytesOf), func(t *testing.T) {
			s := SizeOf(bytesOf)
			require.Equal(t, bytesOf, s.Bytes())
			value := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v)[:bytesOf] }
			require.Equal(t, bytes.Repeat([]byte{0xff}, bytesOf), value(s.Largest()))
			frame := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
			ttl := TTL{Amount: 9, Unit: codec.Seconds}
			unit := []byte{byte(codec.Seconds)}

			got, err := s.AppendInsert(nil, Insert{Key: []byte("k"), Quota: s.Largest(), TTL: ttl})
			require.NoError(t, err)
			require.Equal(t, frame([]byte{1}, value(s.Largest()), unit, value(9), []byte("\x01k")), got)
			got, err = s.AppendUpdate(nil, Update{Change: codec.Decrease, Value: s.Largest(), Key: []byte("k")})
			require.NoError(t, err)
			require.Equal(t, frame([]byte{3, 0, 2}, value(s.Largest()), []byte("\x01k")), got)

			query := frame([]byte{1}, value(s.Largest()), unit, value(9))
			r, n, err := s.Decode(codec.KindQuery, query)
			require.NoError(t, err)
			require.Equal(t, len(query), n)
			require.Equal(t, Response{OK: true, Quota: s.Largest(), TTL: ttl}, r)
			get := frame([]byte{1}, unit, value(9), value(2), []byte("hi"))
			r, n, err = s.Decode(codec.KindGet, get)
			require.NoError(t, err)
			require.Equal(t, len(get), n)
			require.Equal(t, Response{OK: true, TTL: ttl, Value: []byte("hi")}, r)
			event := frame([]byte{byte(codec.OpEvent), 1}, value(2), []byte("chi"))
			e, n, err := s.DecodeEvent(event)
			require.NoError(t, err)
			require.Equal(t, len(event), n)
			require.Equal(t, Event{Channel: []byte("c"), Payload: []byte("hi")}, e)
		})
	}
}

func TestAValueThatIsTooLargeIsNotSent(t *testing.T) {
	for _, bytesOf := range []int{1, 2, 4} {
		calls := NewCalls(SizeOf(bytesOf))
		tooLarge := calls.Size().Largest() + 1
		for _, add := range []func(*Call) error{
			func(cl *Call) error { return cl.Insert(Insert{Quota: tooLarge}) },
			func(cl *Call) error { return cl.Insert(Insert{TTL: TTL{Amount: tooLarge}}) },
			func(cl *Call) error { return cl.Update(Update{Value: tooLarge}) },
			func(cl *Call) error { return Add(cl, codec.Query{Key: make([]byte, codec.MaxKey+1)}) },
		} {
			cl := calls.Get()
			require.NoError(t, Add(cl, codec.Query{}))
			err := add(cl)
			require.Error(t, err)
			require.NoError(t, Add(cl, codec.Query{}))
			require.Equal(t, err, new(Conn).Enqueue(cl, true), bytesOf)
			calls.Put(cl)
			require.NoError(t, cl.invalid)
		}
	}
}
