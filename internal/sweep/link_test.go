package sweep

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/mockserver"
)

// link is a Server with one connection, and further ones for LISTs.
type link struct {
	srv    *mockserver.Server
	conn   *conn.Conn
	log    *slog.Logger
	lists  []time.Time // when a LIST was sent
	parked bool

	neverParks bool
}

func connect(t *testing.T, srv *mockserver.Server, calls *conn.Calls) *link {
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	c := conn.New(nc, nil, conn.Options{
		MaxInFlight: 512, MaxQueued: 512, StallTimeout: time.Minute, Calls: calls, Counters: &conn.Counters{},
	})
	t.Cleanup(func() { c.Close(errors.New("the test is over")) })
	return &link{srv: srv, conn: c, log: slog.New(slog.DiscardHandler)}
}

func (l *link) Do(ctx context.Context, cl *conn.Call) (owned, sent bool, err error) {
	if err := l.conn.Enqueue(cl, true); err != nil {
		return true, false, err
	}
	return cl.Wait(ctx)
}

func (l *link) Stream(ctx context.Context, r codec.Request, decode func([]byte) (int, bool, error), take func() bool) (bool, error) {
	l.lists = append(l.lists, time.Now())
	nc, err := l.srv.Dial(ctx)
	if err != nil {
		return false, err
	}
	defer nc.Close()
	frame, err := r.AppendBinary(nil)
	if err != nil {
		return false, err
	}
	if _, err := nc.Write(frame); err != nil {
		return false, err
	}
	var received []byte
	buf := make([]byte, 4096)
	for {
		used, done, err := decode(received)
		if err == nil {
			take()
		}
		switch received = received[used:]; {
		case done:
			return true, nil
		case err == nil:
			continue
		case !errors.Is(err, codec.ErrShort):
			return true, err
		}
		n, err := nc.Read(buf)
		if err != nil {
			return true, err
		}
		received = append(received, buf[:n]...)
	}
}

func (l *link) Park(context.Context) (bool, error) {
	l.parked = !l.neverParks
	return l.parked, nil
}

// Connected implements Server: there is a connection.
func (l *link) Connected() <-chan struct{} {
	connected := make(chan struct{})
	close(connected)
	return connected
}

func (l *link) MayPark() bool        { return !l.neverParks }
func (l *link) Parked() bool         { return l.parked }
func (l *link) Logger() *slog.Logger { return l.log }
