//go:build unix

package conn

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASocketReadsWhatThereIs(t *testing.T) {
	ours, theirs := tcpPair(t)
	defer ours.Close()
	defer theirs.Close()
	_, err := theirs.Write([]byte("abc"))
	require.NoError(t, err)
	p := make([]byte, 10)
	_, err = io.ReadFull(ours, p[:1]) // waits until all has arrived
	require.NoError(t, err)
	s := newSocket(ours)
	for _, want := range []int{2, 0} {
		n, err := s.read(p)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}
