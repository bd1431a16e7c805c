package fuzz_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// checkFragmentDecoder compares a FragmentDecoder, which gets a response at once and in
// pieces, with the decoder of whole responses.
func checkFragmentDecoder[T codec.Value](t *testing.T, kind codec.Kind, src []byte) {
	res, n, err := codec.DecodeResponse[T](kind, src)
	switch kind {
	case codec.KindList:
		m, _ := res.(codec.ListResponse[T])
		checkPieces(t, src, m.Fragments, n, err)
	case codec.KindStats:
		m, _ := res.(codec.StatsResponse)
		checkPieces(t, src, m.Fragments, n, err)
	case codec.KindConnections:
		m, _ := res.(codec.ConnectionsResponse)
		checkPieces(t, src, m.Fragments, n, err)
	case codec.KindChannels:
		m, _ := res.(codec.ChannelsResponse)
		checkPieces(t, src, m.Fragments, n, err)
	}
}

func checkPieces[E codec.FragmentEntry[E]](t *testing.T, src []byte, fragments [][]E, n int, wantErr error) {
	var want []string
	for _, entries := range fragments {
		want = append(want, fmt.Sprintf("%+v", entries))
	}
	for _, size := range []int{1, 7, 64, len(src) + 1} {
		var d codec.FragmentDecoder[E]
		var got []string // entries are valid until the next call
		var err error
		took := 0
		for end := min(size, len(src)); !d.Done(); {
			var entries []E
			var n int
			entries, n, err = d.Decode(src[took:end:end])
			took += n
			switch {
			case err == nil && entries != nil:
				got = append(got, fmt.Sprintf("%+v", entries))
			case errors.Is(err, codec.ErrShort) && end < len(src):
				end = min(end+size, len(src))
				continue
			}
			if err != nil {
				break
			}
		}
		require.Equal(t, wantErr, err)
		require.Equal(t, err == nil, d.Done())
		if err == nil {
			require.Equal(t, n, took)
			require.Equal(t, want, got)
		}
	}
}
