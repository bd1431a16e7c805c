package mockserver_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/mockserver"
)

// failures stands for a *testing.T, and has what RunT reports.
type failures struct {
	cleanups []func()
	texts    []string
}

func (f *failures) Helper()          {}
func (f *failures) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}
func (f *failures) Fatalf(format string, args ...any) { f.Errorf(format, args...) }

// RunT names the option that is missing if a test moves only one of two clocks.
func TestRunTReportsABackendWithAClockOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		name     string
		opts     []mockserver.Option
		use      func(t *testing.T, srv *mockserver.Server)
		reported bool
	}{
		{"the real clock", nil, hitAndAdvance(), true},
		{"the real clock, on a unix socket", []mockserver.Option{mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "s"))}, hitAndAdvance(), true},
		{"the clock of the server", nil, func(t *testing.T, srv *mockserver.Server) {
			hitAndAdvance(throttr.WithClock(srv.Now))(t, srv)
		}, false},
		{"a backend that was closed before", nil, func(t *testing.T, srv *mockserver.Server) {
			open(t, srv).Close()
			srv.Advance(time.Minute)
		}, false},
		{"a clock that stands", nil, func(t *testing.T, srv *mockserver.Server) { open(t, srv) }, false},
		{"no backend", nil, func(t *testing.T, srv *mockserver.Server) {
			client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{srv.Addr()}})
			require.NoError(t, err)
			defer client.Close()
			srv.Advance(time.Minute)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &failures{}
			srv := mockserver.RunT(f, append(c.opts, mockserver.WithVirtualClock())...)
			c.use(t, srv)
			f.cleanups[0]()
			if !c.reported {
				require.Empty(t, f.texts)
				return
			}
			require.Len(t, f.texts, 1)
			require.Contains(t, f.texts[0], "throttr.WithClock(srv.Now)")
		})
	}
}

func open(t *testing.T, srv *mockserver.Server, opts ...throttr.BackendOption) *throttr.OpenBackend {
	b, err := throttr.OpenServers(t.Context(), throttr.Config{Servers: []string{srv.Addr()}}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// hitAndAdvance returns a use of a server: a hit, and then its clock is moved.
func hitAndAdvance(opts ...throttr.BackendOption) func(*testing.T, *mockserver.Server) {
	return func(t *testing.T, srv *mockserver.Server) {
		_, err := throttr.NewRateLimit(open(t, srv, opts...)).Hit(t.Context(), "k", time.Minute, 1)
		require.NoError(t, err)
		srv.Advance(time.Hour)
	}
}
