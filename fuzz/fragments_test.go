package fuzz_test

import (
	"bytes"
	"errors"
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
		checkPieces(t, src, m.Fragments, n, err, func(e codec.ListEntry[T]) codec.ListEntry[T] {
			e.Key = append([]byte{}, e.Key...)
			return e
		})
	case codec.KindStats:
		m, _ := res.(codec.StatsResponse)
		checkPieces(t, src, m.Fragments, n, err, func(e codec.StatsEntry) codec.StatsEntry {
			e.Key = append([]byte{}, e.Key...)
			return e
		})
	case codec.KindConnections:
		m, _ := res.(codec.ConnectionsResponse)
		checkPieces(t, src, m.Fragments, n, err, func(e codec.ConnectionInfo) codec.ConnectionInfo { return e })
	case codec.KindChannels:
		m, _ := res.(codec.ChannelsResponse)
		checkPieces(t, src, m.Fragments, n, err, func(e codec.ChannelsEntry) codec.ChannelsEntry {
			e.Name = append([]byte{}, e.Name...)
			return e
		})
	}
}

func checkPieces[E codec.FragmentEntry[E]](t *testing.T, src []byte, want [][]E, n int, wantErr error, clone func(E) E) {
	for _, size := range []int{1, 7, 64, len(src) + 1} {
		var d codec.FragmentDecoder[E]
		var got [][]E
		var err error = codec.ErrShort
		took := 0
		for took < len(src) && !d.Done() {
			piece := bytes.Clone(src[took:min(took+size, len(src))])
			var entries []E
			var n int
			entries, n, err = d.Decode(piece)
			if err != nil && !errors.Is(err, codec.ErrShort) {
				break
			}
			took += n
			if err == nil && entries != nil {
				copies := make([]E, len(entries))
				for i, e := range entries {
					copies[i] = clone(e)
				}
				got = append(got, copies)
			}
		}
		if wantErr != nil {
			if err == nil { // src ends at the end of a fragment
				err = codec.ErrShort
			}
			require.Equal(t, wantErr, err)
			require.False(t, d.Done())
			continue
		}
		require.NoError(t, err)
		require.True(t, d.Done())
		require.Equal(t, n, took)
		require.Equal(t, len(want), len(got))
		for i := range want {
			if len(want[i]) > 0 || len(got[i]) > 0 {
				require.Equal(t, want[i], got[i])
			}
		}
	}
}
