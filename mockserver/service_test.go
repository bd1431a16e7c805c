package mockserver_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/servicetime"
	"github.com/throttr-go/throttr/mockserver"
)

func TestServiceTimeIsSpentOnOneRequestAfterTheOther(t *testing.T) {
	const each, n = 100 * time.Microsecond, 100
	thread, err := servicetime.New(each)
	require.NoError(t, err)
	srv := mockserver.RunT(t, mockserver.WithThread(thread))
	start := time.Now()
	var clients sync.WaitGroup
	for range 3 {
		conn := dialReal(t, srv)
		clients.Go(func() {
			for range 2 {
				responses := make([]byte, n)
				if _, err := conn.Write(flood(t, n)); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(conn, responses); err != nil || string(responses) != strings.Repeat("\x00", n) {
					t.Errorf("%x %v", responses, err)
				}
			}
		})
	}
	clients.Wait()
	require.GreaterOrEqual(t, time.Since(start), 3*2*n*each)
}

func TestServiceTimeNeedsTheRealClockAndASocket(t *testing.T) {
	thread, err := servicetime.New(1)
	require.NoError(t, err)
	for _, other := range []mockserver.Option{mockserver.WithVirtualClock(), mockserver.WithAddr("memory", "")} {
		_, err := mockserver.Start(mockserver.WithThread(thread), other)
		require.ErrorContains(t, err, "WithThread")
	}
}
