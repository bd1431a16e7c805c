package conn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestAValueThatIsTooLargeIsNotSent(t *testing.T) {
	for _, bytesOf := range []int{1, 2, 4} {
		calls := NewCalls(SizeOf(bytesOf))
		tooLarge := calls.Size().Largest() + 1
		for text, add := range map[string]func(*Call) error{
			"Quota is":        func(cl *Call) error { return cl.Insert(Insert{Quota: tooLarge}) },
			"TTL is":          func(cl *Call) error { return cl.Insert(Insert{TTL: TTL{Amount: tooLarge}}) },
			"Value is":        func(cl *Call) error { return cl.Update(Update{Value: tooLarge}) },
			"key is 256 byte": func(cl *Call) error { return Add(cl, codec.Query{Key: make([]byte, codec.MaxKey+1)}) },
		} {
			cl := calls.Get()
			require.NoError(t, Add(cl, codec.Query{}))
			err := add(cl)
			require.ErrorContains(t, err, text)
			require.NoError(t, Add(cl, codec.Query{}))
			require.Equal(t, err, new(Conn).Enqueue(cl), bytesOf)
			calls.Put(cl)
			require.NoError(t, cl.invalid)
		}
	}
}
