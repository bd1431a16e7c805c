package throttr

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALoadIsRequestsAndCalls(t *testing.T) {
	var l load
	l.add(5, 1)
	l.add(1<<20, 1)
	l.add(1, 1)
	require.Equal(t, 6+1<<20, l.get().requests())
	require.Equal(t, 3, l.get().calls())
	more := l.get()
	l.remove(6, 2)
	require.Less(t, l.get(), more)
	require.Equal(t, 1, l.get().calls())
	l.remove(1<<20, 1)
	require.Zero(t, l.get())
}

// Another connection is worth having where many calls meet, or where requests fill half of
// what may be in flight; calls of a few requests each do not make it so.
func TestWhenAnotherConnectionIsWorthHaving(t *testing.T) {
	for _, tt := range []struct {
		conns, requests, calls int
		want                   bool
	}{
		{1, 47, 47, false}, {1, 48, 48, true},
		{1, 188, 47, false}, {1, 255, 1, false}, {1, 256, 1, true},
		{2, 95, 95, false}, {2, 190, 95, false}, {2, 96, 96, true},
		{4, 5000, 5000, false},
	} {
		p := &pool[uint16]{cfg: &Config{MaxConns: 4, MaxInFlight: 512}}
		conns := make([]*conn[uint16], tt.conns)
		for i := range conns {
			conns[i] = &conn[uint16]{}
			conns[i].load.add(tt.requests, tt.calls)
		}
		p.conns.Store(&conns)
		require.Equal(t, tt.want, p.wanting(p.idlest()), "%+v", tt)
	}
}
