package postgresbackend_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

// tap is what the connections of a pool pass. Each round trip is one write.
type tap struct {
	mu    sync.Mutex
	at    int             // the write at which act is called, from now on; 0: none
	act   func(c *tapped) // before the write, without the mutex
	dials atomic.Int64    // how many further ones fail
}

// arm makes the n-th write from now call act.
func (p *tap) arm(n int, act func(c *tapped)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = n
	p.act = act
}

type tapped struct {
	net.Conn
	*tap
	deaf atomic.Bool // it ends when the server answers, and that is lost
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *tapped) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.at--
	now, act := c.at == 0, c.act
	c.mu.Unlock()
	if now && act != nil {
		act(c)
	}
	return c.Conn.Write(b)
}

// tapPool returns a pool of one connection that passes a tap.
func tapPool(t testing.TB, s *testkit.Postgres) (*pgxpool.Pool, *tap) {
	p := new(tap)
	return connect(t, s, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if p.dials.Add(-1) >= 0 {
				return nil, errors.New("no route")
			}
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, addr)
			return &tapped{Conn: nc, tap: p}, err
		}
	}), p
}

func limitOf(a window.Algorithm, max uint64) window.Limit {
	return window.Limit{Max: max, Scale: time.Hour, Algorithm: a}
}

var hourly = limitOf(window.FixedWindow, 1_000_000)

// takeOf takes of one count, or of two, which locks their rows.
func takeOf(counts int, b window.Backend, key string) error {
	takes := []window.Take{hourly.For(key, 1), hourly.For(key+"2", 1)}
	_, err := b.TakeAll(context.Background(), takes[:counts], make([]window.Window, counts))
	return err
}

// A connection that can't be made, or is cut in the first round trip, costs nothing. In the second, the call fails, and
// is counted or not.
func TestConnectionsThatAreCut(t *testing.T) {
	s := testkit.StartPostgres(t)
	plain := connect(t, s)
	opts := newTable(t, plain)
	direct := postgresbackend.New(plain, opts...)
	pool, p := tapPool(t, s)
	b := postgresbackend.New(pool, opts...)
	for trip := 1; trip <= 2; trip++ {
		for counts := 1; counts <= 2; counts++ {
			for before, cut := range map[bool]func(c *tapped){
				true: func(c *tapped) { c.Close() }, false: func(c *tapped) { c.deaf.Store(true) },
			} {
				key := fmt.Sprint(trip, counts, before)
				noError(t, takeOf(counts, b, key))
				p.arm(trip, cut)
				err := takeOf(counts, b, key)
				p.arm(0, nil)
				counted := must(t, direct.Peek, key, hourly, 0).Count
				want := uint64(2)
				if trip == 2 && before {
					want = 1
				}
				expect(t, counted == want && errors.Is(err, window.ErrUnavailable) == (trip == 2) && (err == nil) == (trip == 1),
					"trip %d, %d counts, before %v: %d are counted, %v", trip, counts, before, counted, err)
				pool.Reset()
				p.dials.Store(2)
				noError(t, takeOf(counts, b, key))
			}
		}
	}
}

// A process that stops between its round trips makes nobody wait if it has no locks, and otherwise for a second. When
// it goes on, it changes nothing that it has not read.
func TestAProcessThatStopsBetweenItsRoundTrips(t *testing.T) {
	s := testkit.StartPostgres(t)
	plain := connect(t, s)
	opts := newTable(t, plain)
	other := postgresbackend.New(plain, opts...)
	pool, p := tapPool(t, s)
	frozen := postgresbackend.New(pool, opts...)
	for counts := 1; counts <= 2; counts++ {
		locks := counts == 2
		noError(t, takeOf(counts, frozen, "k"))
		before := must(t, other.Peek, "k", hourly, 0).Count
		stopped, goOn, done := make(chan bool), make(chan bool), make(chan error)
		p.arm(2, func(*tapped) {
			close(stopped)
			<-goOn
		})
		go func() { done <- takeOf(counts, frozen, "k") }()
		<-stopped
		begun := time.Now()
		for range 10 {
			must(t, other.Take, "k", hourly, 1)
		}
		took := time.Since(begun)
		close(goOn)
		expect(t, took < 2500*time.Millisecond && (locks || took < 900*time.Millisecond), "locks %v: others have waited for %v", locks, took)
		err := <-done
		counted := must(t, other.Peek, "k", hourly, 0).Count - before
		expect(t, counted == 11 && err == nil || counted == 10 && err != nil && locks, "locks %v: %d are counted, %v", locks, counted, err)
	}
}

// The server is stopped and goes on, and is restarted, and killed, while many call.
func TestServerThatStopsAndRestartsUnderLoad(t *testing.T) {
	s := testkit.StartPostgres(t)
	opts := newTable(t, connect(t, s), postgresbackend.WithDurability(postgresbackend.Full))
	one, other := postgresbackend.New(connect(t, s), opts...), postgresbackend.New(connect(t, s), opts...)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		time.Sleep(300 * time.Millisecond)
		s.Freeze()
		time.Sleep(500 * time.Millisecond)
		s.Thaw()
		for _, end := range []func(){s.Stop, s.Kill} {
			time.Sleep(500 * time.Millisecond)
			end()
			time.Sleep(100 * time.Millisecond)
			s.Restart(t)
		}
		time.Sleep(500 * time.Millisecond)
	}()
	granted, unknown := flood(ctx, one, other)
	sum := expectCounted(t, one, granted, unknown)
	expect(t, sum > 100, "%d are granted", sum)
}

// A connection whose server has become a replica is closed by the first call that it fails: at its address, there may be
// another one by then.
func TestAServerThatHasBecomeAReplica(t *testing.T) {
	s := testkit.StartPostgres(t)
	pool := connect(t, s, func(c *pgxpool.Config) { c.MaxConns = 1 })
	b := postgresbackend.New(pool, newTable(t, pool)...)
	must(t, b.Take, "k", hourly, 1)
	s.Stop()
	noError(t, os.WriteFile(filepath.Join(s.Data, "standby.signal"), nil, 0o644))
	s.Restart(t)
	for i := range 4 {
		before := pool.Stat().NewConnsCount()
		err := takeOf(1+i%2, b, "k")
		expect(t, errors.Is(err, window.ErrUnavailable), "call %d: %v", i, err)
		expect(t, i == 0 || pool.Stat().NewConnsCount() == before+1, "call %d has used the connection of the one before", i)
	}
	expect(t, must(t, b.Peek, "k", hourly, 0).Count == 1, "a replica does not answer")
}

// Calls of a server that does not respond end within the timeout of three seconds, also if they have to wait for
// requests that were made before, and so does a sweep: its connection is one of the few of the process.
func TestCallsOfAServerThatHangsEnd(t *testing.T) {
	s := testkit.StartPostgres(t)
	pool := connect(t, s)
	opts := newTable(t, pool)
	b, busy := postgresbackend.New(pool, opts...), postgresbackend.New(pool, append(opts, postgresbackend.WithMaxQueued(1))...)
	must(t, b.Take, "k", hourly, 1)
	s.Freeze()
	defer s.Thaw()
	var all sync.WaitGroup
	within := func(what string, call func() error) {
		all.Go(func() {
			begun := time.Now()
			if err, took := call(), time.Since(begun); err == nil || took > 4500*time.Millisecond {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		})
	}
	within("sweep", func() error { return postgresbackend.Sweep(context.Background(), b) })
	for i := range 4 {
		within("take", func() error { return takeOf(1, b, fmt.Sprint("k", i)) })
		within("take all", func() error { return takeOf(2, b, fmt.Sprint("k", i)) })
		time.Sleep(200 * time.Millisecond)
	}
	var refused atomic.Int64
	for range 64 {
		within("take of many", func() error {
			err := takeOf(1, busy, "k")
			if errors.Is(err, window.ErrOverloaded) {
				refused.Add(1)
			}
			return err
		})
	}
	all.Wait()
	expect(t, refused.Load() > 32, "%d of 64 calls are refused", refused.Load())
	begun := time.Now()
	time.AfterFunc(100*time.Millisecond, func() { _ = b.Close() })
	err := takeOf(1, b, "k")
	expect(t, errors.Is(err, window.ErrClosed) && time.Since(begun) < 2*time.Second, "Close leaves a call under way: %v after %v", err, time.Since(begun))
}

// A server without room on its disk is an outage, and full: whoever serves requests in an outage need not serve these.
// What others have got in the way of was not done, and is made again, also a Delete.
func TestAServerThatFailsCalls(t *testing.T) {
	b, pool := start(t)
	_, err := pool.Exec(t.Context(), `CREATE SEQUENCE tried; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN CASE nextval('tried')
	WHEN 1 THEN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
	WHEN 3 THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = 'deadlock_detected';
	WHEN 4 THEN RAISE EXCEPTION 'others' USING ERRCODE = 'serialization_failure';
	ELSE RETURN NEW; END CASE; END $$;
CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON `+postgresbackend.Table(b)+` FOR EACH ROW EXECUTE FUNCTION fail()`,
		pgx.QueryExecModeSimpleProtocol)
	noError(t, err)
	_, err = b.Take(t.Context(), "k", hourly, 1)
	expect(t, errors.Is(err, window.ErrFull) && errors.Is(err, window.ErrUnavailable), "%v", err)
	must(t, b.Take, "k", hourly, 1)
	n, err := b.Delete(t.Context(), "k")
	expect(t, n == 1 && err == nil, "%d, %v", n, err)
}

// panicking panics when a batch begins.
type panicking struct {
	tracelog.TraceLog // which traces nothing
	now               atomic.Bool
}

func (p *panicking) TraceBatchStart(ctx context.Context, c *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	if p.now.Load() {
		panic("a bug of the program")
	}
	return p.TraceLog.TraceBatchStart(ctx, c, d)
}

// A function of the program that pgx calls, and that panics, fails the calls of the request. It may run on a goroutine
// of the backend, where it would end the process.
func TestAPanicOfATracerIsAnError(t *testing.T) {
	p := &panicking{TraceLog: tracelog.TraceLog{LogLevel: tracelog.LogLevelNone}}
	b, _ := start(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = p })
	p.now.Store(true)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := takeOf(1+i%2, b, "k"); !errors.Is(err, window.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, err := b.Delete(t.Context(), "k")
	expect(t, errors.Is(err, window.ErrUnavailable), "%v", err)
	p.now.Store(false)
	expect(t, must(t, b.Take, "k", hourly, 1).Count == 1, "what has failed was counted")
}
