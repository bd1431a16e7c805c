package outage

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The circuit closes, opens and closes while a call waits to learn whether it may try.
func TestACallThatComesWhileTheCircuitClosesIsLetThrough(t *testing.T) {
	errAway := errors.New("away")
	probe := func() error { return errAway }
	c := NewCircuit(1, time.Hour, func(error) {}, func() {})
	c.open(errAway, probe)
	var ticket Ticket
	entered := make(chan error)
	c.mu.Lock()
	go func() {
		var err error
		ticket, err = c.Enter()
		entered <- err
	}()
	time.Sleep(50 * time.Millisecond) // Enter waits for mu
	c.epoch.Add(1)
	c.closeLocked()
	c.mu.Unlock()
	require.NoError(t, <-entered)
	ticket.Leave(Away, errAway, probe)
	require.Equal(t, errAway, c.Err(), "its failure counts")
}
