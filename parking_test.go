package throttr_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestParkingInURLs(t *testing.T) {
	cfg, err := throttr.ParseURL("throttr://h1")
	require.NoError(t, err)
	require.Equal(t, throttr.ParkingAutomatic, cfg.Parking)
	for _, want := range []throttr.Parking{throttr.ParkingAutomatic, throttr.ParkingNever, throttr.ParkingAlways} {
		cfg, err := throttr.ParseURL(fmt.Sprintf("throttr://h1,h2?max_conns=2&parking=%v", want))
		require.NoError(t, err)
		require.Equal(t, want, cfg.Parking)
		require.Equal(t, 2, cfg.MaxConns)
	}
	for _, wrong := range []string{"", "Always", "on", "true", "2", "Parking(1)"} {
		_, err := throttr.ParseURL("throttr://h1?parking=" + wrong)
		require.ErrorIs(t, err, throttr.ErrConfig, wrong)
		require.ErrorContains(t, err, "automatic, never or always")
	}
	_, err = throttr.ParseURL("throttr://h1?parking=never&parking=never")
	require.ErrorIs(t, err, throttr.ErrConfig)
}

func TestParkingIsTextInJSON(t *testing.T) {
	settings := struct{ Parking throttr.Parking }{throttr.ParkingNever}
	b, err := json.Marshal(settings)
	require.NoError(t, err)
	require.JSONEq(t, `{"Parking": "never"}`, string(b))
	require.NoError(t, json.Unmarshal([]byte(`{"Parking": "always"}`), &settings))
	require.Equal(t, throttr.ParkingAlways, settings.Parking)
	_, err = json.Marshal(throttr.Parking(9))
	require.ErrorIs(t, err, throttr.ErrConfig)
	require.Equal(t, "Parking(9)", throttr.Parking(9).String())
	_, err = throttr.Connect[uint16](t.Context(), throttr.Config{Parking: 9})
	require.ErrorIs(t, err, throttr.ErrConfig)
}

// logFile is what a logger writes to. It is safe for concurrent use.
type logFile struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (f *logFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(p)
}

// lines returns the lines since the last call, without the time.
func (f *logFile) lines() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(f.text.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, line)
	}
	f.text.Reset()
	return all
}

// logLines returns a logger, and what returns its lines since the last call.
func logLines() (logger *slog.Logger, lines func() []string) {
	var f logFile
	return slog.New(slog.NewTextHandler(&f, nil)), f.lines
}

func TestLoggerIsToldWhatHappensToServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := mockserver.Start(mockserver.WithAddr("memory", "memory:1"), mockserver.WithRealCollector())
		require.NoError(t, err)
		defer srv.Close()
		logger, lines := logLines()
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Logger: logger}))
		limiter := throttr.NewRateLimit(client.Backend())
		testkit.Hits(t, limiter, 1, "k", time.Second, 5)
		require.Equal(t, []string{`level=INFO msg="throttr: server is parked: no record expires there" server=memory:1`}, lines())
		testkit.Hits(t, limiter, 1, "k", time.Second, 5)
		require.Empty(t, lines(), "a hit is logged by LogTo")

		dead := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		testkit.Hits(t, throttr.NewRateLimit(dead.Backend()), 1, "orphan", 2*time.Second, 5)
		dead.Close()
		time.Sleep(20 * time.Minute)
		swept := lines()
		require.Len(t, swept, 1)
		require.Regexp(t, `^level=INFO msg="throttr: server swept" server=memory:1 records=1 removed=1 kept=0 foreign=0 took=`, swept[0])

		remove := srv.Inject(mockserver.Fault{Drop: true}) // so does a server that has locked up
		time.Sleep(2 * time.Minute)
		var locked []string
		for _, line := range lines() {
			if !strings.Contains(line, "sweep failed") {
				locked = append(locked, line)
			}
		}
		const message = "throttr: server accepts connections but answers nothing: locked up (H12); only a restart helps"
		require.Equal(t, []string{`level=ERROR msg="` + message + `" server=memory:1`}, locked)
		remove()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{`level=INFO msg="throttr: server responds again" server=memory:1`}, lines())
	})
}

func TestLoggerIsToldThatAServerCannotBeParked(t *testing.T) {
	for _, p := range []throttr.Parking{throttr.ParkingAutomatic, throttr.ParkingAlways} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				srv.Set("", 7, time.Minute) // in milliseconds
				logger, lines := logLines()
				testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Logger: logger, Parking: p})).Backend()
				time.Sleep(50 * time.Second)
				if p == throttr.ParkingAutomatic {
					require.Empty(t, lines(), "there is a record of somebody else: nobody wants the server to be parked")
					return
				}
				const message = "throttr: the server can't be parked: the record with the empty key is somebody's data"
				require.Equal(t, []string{`level=WARN msg="` + message + `" server=memory:1`}, lines(), "it is told once")
				require.True(t, srv.Delete(""))
				time.Sleep(time.Minute)
				require.Equal(t, []string{`level=INFO msg="throttr: server is parked: no record expires there" server=memory:1`}, lines())
			})
		})
	}
}
