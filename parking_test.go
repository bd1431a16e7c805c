package throttr_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

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

// said returns the level, message and server of the lines since the last call.
func (j *journal) said(t *testing.T) (all []string) {
	for _, line := range j.entries(t) {
		all = append(all, fmt.Sprint(line["level"], " ", line["msg"], " ", line["server"]))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines.Reset()
	return all
}

const parkedLine = "INFO throttr: server is parked: no record expires there memory:1"

func TestLoggerIsToldWhatHappensToServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := mockserver.Start(mockserver.WithAddr("memory", "memory:1"), mockserver.WithRealCollector())
		require.NoError(t, err)
		defer srv.Close()
		log := &journal{}
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Logger: log.logger()}))
		limiter := throttr.NewRateLimit(client.Backend())
		testkit.Hits(t, limiter, 1, "k", time.Second, 5)
		require.Equal(t, []string{parkedLine}, log.said(t))
		testkit.Hits(t, limiter, 1, "k", time.Second, 5)
		require.Empty(t, log.said(t), "hits are not logged")

		dead := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		testkit.Hits(t, throttr.NewRateLimit(dead.Backend()), 1, "orphan", 2*time.Second, 5)
		dead.Close()
		time.Sleep(20 * time.Minute)
		swept := log.entries(t)
		require.Len(t, swept, 1)
		for name, want := range map[string]any{"msg": "throttr: server swept", "server": "memory:1", "records": 1.0, "removed": 1.0, "kept": 0.0, "foreign": 0.0} {
			require.Equal(t, want, swept[0][name], name)
		}
		log.said(t)

		remove := srv.Inject(mockserver.Fault{Drop: true}) // so does a server that has locked up
		time.Sleep(2 * time.Minute)
		locked := slices.DeleteFunc(log.said(t), func(line string) bool { return strings.Contains(line, "sweep failed") })
		require.Equal(t, []string{"ERROR throttr: server accepts connections but answers nothing: locked up (H12); only a restart helps memory:1"}, locked)
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrLockedUp)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.True(t, testkit.SafeToRetry(err) && client.Stats().Servers[0].LockedUp)
		srv.Refuse(true)
		time.Sleep(10 * time.Second)
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.NotErrorIs(t, err, throttr.ErrLockedUp, "it may have been ended")
		require.True(t, client.Stats().Servers[0].LockedUp, "it has not responded since")
		srv.Refuse(false)
		remove()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"INFO throttr: server responds again memory:1"}, log.said(t))
	})
	for _, p := range []throttr.Parking{throttr.ParkingAutomatic, throttr.ParkingAlways} {
		synctest.Test(t, func(t *testing.T) {
			srv, log := testkit.InMemory(t), &journal{}
			srv.Set("", 7, time.Minute) // in milliseconds
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Logger: log.logger(), Parking: p}))
			testkit.Hits(t, testkit.NewRateLimit(client.Backend()), 1, "k", time.Second, 5)
			time.Sleep(50 * time.Second)
			quota, _ := srv.Counter("")
			left, _ := srv.TTL("")
			require.Equal(t, []any{uint64(7), 10 * time.Second, false}, []any{quota, left, client.Stats().Servers[0].Parked})
			if p == throttr.ParkingAutomatic {
				require.Empty(t, log.said(t), "there is a record of somebody else: nobody wants the server to be parked")
				return
			}
			require.Equal(t, []string{"WARN throttr: the server can't be parked: the record with the empty key is somebody's data memory:1"}, log.said(t), "it is told once")
			require.True(t, srv.Delete(""))
			time.Sleep(time.Minute)
			require.Equal(t, []string{parkedLine}, log.said(t))
		})
	}
}
