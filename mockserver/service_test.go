package mockserver_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

func TestAServiceTimeIsTakenByOneRequestAfterTheOther(t *testing.T) {
	const each, n = 100 * time.Microsecond, 100
	srv := mockserver.RunT(t, mockserver.WithServiceTime(each))
	start := time.Now()
	var clients sync.WaitGroup
	for range 3 {
		conn := dialReal(t, srv)
		clients.Go(func() {
			for range 2 {
				answers := make([]byte, n)
				if _, err := conn.Write(flood(t, n)); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(conn, answers); err != nil || string(answers) != strings.Repeat("\x00", n) {
					t.Errorf("%x %v", answers, err)
				}
			}
		})
	}
	clients.Wait()
	require.GreaterOrEqual(t, time.Since(start), 3*2*n*each)
}

func TestAServiceTimeNeedsTimeThatPasses(t *testing.T) {
	for _, opts := range [][]mockserver.Option{
		{mockserver.WithServiceTime(-1)},
		{mockserver.WithServiceTime(mockserver.MaxServiceTime + 1)},
		{mockserver.WithServiceTime(1), mockserver.WithVirtualClock()},
		{mockserver.WithServiceTime(1), mockserver.WithAddr("memory", "")},
	} {
		_, err := mockserver.Start(opts...)
		require.ErrorContains(t, err, "service time")
	}
}
