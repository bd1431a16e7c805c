package conn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What a server can't send keeps its memory for good (H16).
func TestCloseWaitsForTheResponsesThatAreDue(t *testing.T) {
	onPipe(t, Options[uint16]{MaxInFlight: 2}, func(t *testing.T, l link) {
		inFlight := l.enqueue(Interruptible, 2, queryFrame)
		require.Equal(t, 2*queryFrame, l.received())
		queued := l.enqueue(Interruptible, 1, queryFrame)
		var closed time.Time
		go func() {
			l.Close(errTest)
			closed = time.Now()
		}()
		synctest.Wait()
		_, err := l.outcome(queued)
		require.ErrorIs(t, err, errTest, "it fails at once")
		require.ErrorIs(t, l.Enqueue(l.call(Interruptible, 1, queryFrame), true), ErrGone)
		require.False(t, inFlight.isDone())
		time.Sleep(100 * time.Millisecond)
		answered := time.Now()
		l.respond(2)
		l.requireDone(inFlight)
		require.Equal(t, answered, closed)
		require.ErrorIs(t, l.Err(), errTest)
		_, err = l.server.Read(make([]byte, 1))
		require.Error(t, err, "the network connection is closed")
	})
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 2, queryFrame)
		require.Equal(t, 2*queryFrame, l.received())
		start := time.Now()
		l.Close(errTest)
		require.Equal(t, closeGrace, time.Since(start))
		sent, err := l.outcome(cl)
		require.True(t, sent)
		require.ErrorIs(t, err, errTest)
	})
}

// A connection that is retired can be closed, and the reason is that of the latter.
func TestCloseAfterRetire(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 1, queryFrame)
		require.Equal(t, queryFrame, l.received())
		l.Retire()
		reason := errors.New("closed")
		go l.Close(reason)
		synctest.Wait()
		l.Retire()
		l.respond(1)
		l.requireDone(cl)
		<-l.Done()
		require.Equal(t, reason, l.Err())
	})
}
