package outage_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/window"
)

// remote is a backend whose store has a part for each first letter of keys.
type remote struct {
	testkit.Hooked
	mu    sync.Mutex                                 // guards what follows
	away  map[string]func(ctx context.Context) error // by part
	calls []string
}

// limit is the limit of all calls.
var limit = window.Limit{Max: 10, Scale: time.Minute, Algorithm: window.FixedWindow}

// newRemote returns a store that is there.
func newRemote() *remote {
	r := &remote{away: map[string]func(context.Context) error{}}
	r.Hooked = testkit.Hooked{Backend: window.Unimplemented{}, Around: func(ctx context.Context, name string, takes []window.Take, _ func() error) error {
		for _, t := range takes {
			if err := r.call(ctx, name, t.Key); err != nil {
				return err
			}
		}
		return nil
	}}
	return r
}

// be makes calls of a part do f, or nothing if that is nil.
func (r *remote) be(part string, f func(ctx context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away[part] = f
}

// made returns the calls that were made.
func (r *remote) made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *remote) Part(key string) string { return key[:1] }

func (r *remote) call(ctx context.Context, name, key string) error {
	r.mu.Lock()
	r.calls = append(r.calls, name+" "+key)
	f := r.away[key[:1]]
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (r *remote) Set(ctx context.Context, key string, _ window.Limit, _ uint64) (w window.Window, err error) {
	return w, r.call(ctx, "set", key)
}

func (r *remote) Reset(ctx context.Context, key string, _ window.Limit) error {
	return r.call(ctx, "reset", key)
}

func (r *remote) Delete(ctx context.Context, key string, _ ...time.Duration) (int, error) {
	return 0, r.call(ctx, "delete", key)
}

func (r *remote) Check(l window.Limit) (window.Traits, error) {
	if l.Max > 100 {
		return window.Traits{}, &window.RangeError{Field: "Max"}
	}
	return window.Traits{}, nil
}

func (r *remote) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	for i, c := range claims {
		places[i].Err = r.call(ctx, "exchange", c.Key)
	}
	return nil
}

// guarded makes a call of a backend.
type guarded = func(ctx context.Context, g window.Backend, key string, l window.Limit) error

// by makes a call of a method.
func by(method func(window.Backend, context.Context, string, window.Limit, uint64) (window.Window, error)) guarded {
	return func(ctx context.Context, g window.Backend, key string, l window.Limit) error {
		_, err := method(g, ctx, key, l, 1)
		return err
	}
}

// calls are those that a guard guards.
var calls = map[string]guarded{
	"hit": by(window.Backend.Hit), "take": by(window.Backend.Take), "charge": by(window.Backend.Charge),
	"peek": by(window.Backend.Peek),
	"give back": func(ctx context.Context, g window.Backend, key string, l window.Limit) error {
		_, err := g.GiveBack(ctx, key, l, 1, 1)
		return err
	},
	"take all": func(ctx context.Context, g window.Backend, key string, l window.Limit) error {
		_, err := g.TakeAll(ctx, []window.Take{l.For(key+"2", 1), l.For(key, 1)}, make([]window.Window, 2))
		return err
	},
	"exchange": func(ctx context.Context, g window.Backend, key string, _ window.Limit) error {
		var places [1]window.Places
		err := g.Exchange(ctx, []window.Claim{{Key: key, Lease: time.Second}}, places[:])
		return cmp.Or(err, places[0].Err)
	},
}

var errNotAsked = errors.New("not asked")

func guard(b window.Backend) *outage.Guard {
	return outage.New(b, outage.Options{
		Settings: outage.Settings{Logger: outage.Silent},
		Watch:    &outage.Watch{Logger: outage.Silent, Text: error.Error, Observed: func(error, time.Duration) {}},
		NotMade: func(call, key string, cause error) error {
			return fmt.Errorf("%w: %s %s: %w", errNotAsked, call, key, cause)
		},
	})
}

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// stall is hang of a store whose connection has the deadline of ctx, and a timer of its own.
func stall(ctx context.Context) error {
	at, _ := ctx.Deadline()
	time.Sleep(time.Until(at))
	return os.ErrDeadlineExceeded
}

// lateTimer is a context whose deadline has passed, before its timer.
type lateTimer struct{ context.Context }

func (lateTimer) Deadline() (at time.Time, ok bool) { return time.Now().Add(-1), true }

func down(context.Context) error { return window.ErrUnavailable }

// Each call ends in time, and tells the circuit of its part; while that is open, none is made. Other parts are asked.
func TestAGuardedPartIsAwayForAllCalls(t *testing.T) {
	for state, fault := range map[string]func(context.Context) error{"hangs": hang, "stalls": stall, "down": down} {
		for name, call := range calls {
			testkit.Bubble(t, state+"/"+name, func(t *testing.T) {
				store := newRemote()
				store.be("a", fault)
				g := guard(store)
				for range 3 {
					begun := time.Now()
					require.NoError(t, g.Err("a", 0))
					err := call(t.Context(), g, "a", limit)
					require.LessOrEqual(t, time.Since(begun), 250*time.Millisecond)
					require.ErrorIs(t, err, window.ErrUnavailable)
				}
				require.Error(t, g.Err("a", 0))
				require.NoError(t, g.Err("b", 0))
				asked := len(store.made())
				for other, call := range calls {
					require.ErrorIs(t, call(t.Context(), g, "a", limit), errNotAsked, other)
				}
				require.Len(t, store.made(), asked)
				for other, call := range calls {
					require.NoError(t, call(t.Context(), g, "b", limit), other)
				}
				store.be("a", nil)
				time.Sleep(time.Second)
				for other, call := range calls {
					require.NoError(t, call(t.Context(), g, "a", limit), other)
				}
			})
		}
	}
}

// What a caller does wrong, or ends, or what concerns some keys, opens no circuit. A mistake is a mistake, and the end
// of a ctx that of the caller, also while one is open.
func TestWhatSaysNothingAboutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := limit
		bad.Max = 101
		store := newRemote()
		g := guard(struct{ window.Backend }{store})
		for _, cause := range []error{
			window.ErrRange, window.ErrScale, window.ErrUnsupported, window.ErrConfig, window.ErrClosed, window.ErrOverloaded, window.ErrFull, errors.New("WRONGTYPE"),
		} {
			store.be("a", func(context.Context) error { return cause })
			for range 10 {
				require.ErrorIs(t, calls["take"](t.Context(), g, "a", limit), cause)
				require.NoError(t, g.Err("", 0))
			}
		}
		store.be("a", hang)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := calls["take"](ctx, g, "a", limit)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, window.ErrUnavailable)
			cancel()
			require.NoError(t, g.Err("", 0))
			require.ErrorIs(t, calls["take"](t.Context(), g, "a", bad), window.ErrRange, "the store has not said so")
			require.NoError(t, g.Err("", 0))
		}
		store.be("a", stall)
		for name, call := range calls {
			require.ErrorIs(t, call(lateTimer{t.Context()}, g, "a", limit), os.ErrDeadlineExceeded, name)
			require.NoError(t, g.Err("", 0), name)
		}
		store.be("a", down)
		for range 3 {
			require.Error(t, calls["take"](t.Context(), g, "a", limit))
		}
		require.Error(t, g.Err("", 0))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range calls {
			err := call(ended, g, "a", limit)
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, errNotAsked, name)
			if name != "exchange" {
				require.EqualError(t, call(t.Context(), g, "a", bad), `throttr: `+map[bool]string{true: "take", false: name}[name == "take all"]+
					` "`+map[bool]string{true: "a2", false: "a"}[name == "take all"]+`": `+trimmed(&window.RangeError{Field: "Max"}), name)
			}
		}
	})
}

func trimmed(err error) string { return err.Error()[len("throttr: "):] }

// Failures in a row are those between which the store has not answered. Whoever does not ask it interrupts none.
func TestFailuresInARow(t *testing.T) {
	for _, c := range []struct {
		between error
		opens   bool
	}{
		{window.ErrOverloaded, true}, {window.ErrRange, true}, {window.ErrUnsupported, true}, {window.ErrClosed, true},
		{nil, false}, {window.ErrFull, false}, {errors.New("WRONGTYPE"), false},
	} {
		store := newRemote()
		g := guard(store)
		for _, cause := range []error{window.ErrUnavailable, window.ErrUnavailable, c.between, window.ErrUnavailable} {
			store.be("a", func(context.Context) error { return cause })
			require.ErrorIs(t, calls["take"](t.Context(), g, "a", limit), cause)
		}
		require.Equal(t, c.opens, g.Err("a", 0) != nil, c.between)
	}
	store := newRemote()
	g := guard(store)
	for range 3 {
		store.be("a", nil)
		given, err := g.GiveBack(t.Context(), "a", limit, 1, 0)
		require.NoError(t, err)
		require.False(t, given)
		store.be("a", down)
		require.Error(t, calls["take"](t.Context(), g, "a", limit))
	}
	require.Error(t, g.Err("a", 0), "what comes too late to be given back is not asked of the store")
}

// Takes of several parts go through the circuits of all, and use up no trial if one of them is open.
func TestACallOfSeveralPartsNeedsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.be("x", down)
		store.be("a", down)
		g := guard(store)
		for range 3 {
			require.Error(t, calls["take"](t.Context(), g, "x", limit))
			require.Error(t, calls["take"](t.Context(), g, "a", limit))
		}
		store.be("x", nil)
		time.Sleep(time.Second)
		for range 3 {
			_, err := g.TakeAll(t.Context(), []window.Take{limit.For("x", 1), limit.For("a", 1)}, make([]window.Window, 2))
			require.ErrorIs(t, err, errNotAsked)
			require.ErrorContains(t, err, "take a:", "the key whose part is away")
		}
		require.NoError(t, calls["take"](t.Context(), g, "x", limit))
		require.NoError(t, g.Err("x", 0))
	})
}

// An exchange may take a quarter of its shortest lease.
func TestAnExchangeHasAQuarterOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.be("a", hang)
		g := guard(struct{ window.Backend }{store})
		begun := time.Now()
		claims := []window.Claim{{Key: "a", Lease: time.Hour}, {Key: "b", Lease: 400 * time.Millisecond}}
		places := make([]window.Places, 2)
		require.NoError(t, g.Exchange(t.Context(), claims, places))
		require.ErrorIs(t, places[0].Err, window.ErrUnavailable)
		require.NoError(t, places[1].Err)
		require.Equal(t, 100*time.Millisecond, time.Since(begun))
	})
}

// leases is a backend that holds places of the key "held".
type leases struct{ *remote }

func (l *leases) Held() outage.Held {
	return outage.Held{Of: l, Take: func(_ context.Context, key string, _ window.Limit, n uint64) (window.Window, bool) {
		return window.Window{Count: n}, key == "held"
	}}
}

// wrapper is a type of its own, whose methods must be called.
type wrapper struct{ *leases }

// Places that are held are spent while the circuit is open, but only those of the backend itself.
func TestHeldPlacesNeedNoStore(t *testing.T) {
	store := newRemote()
	store.be("o", down)
	store.be("h", down)
	l := &leases{store}
	g := guard(l)
	for range 5 {
		require.Error(t, calls["take"](t.Context(), g, "other", limit))
		require.NoError(t, calls["take"](t.Context(), g, "held", limit))
		require.NoError(t, calls["hit"](t.Context(), g, "held", limit))
	}
	require.Error(t, g.Err("o", 0), "what was held says nothing about the store")
	require.Equal(t, []string{"take other", "take other", "take other"}, store.made())
	wrapped := guard(&wrapper{l})
	require.ErrorIs(t, calls["take"](t.Context(), wrapped, "held", limit), window.ErrUnavailable)
}

// A backend may panic. In the background, that is reported, and only calls find out more: they panic where the
// program can recover, and show nothing.
func TestAPanicShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newRemote()
		g := guard(store)
		g.Logger = slog.New(slog.NewTextHandler(&log, nil))
		for _, name := range []string{"take", "exchange"} {
			log.Reset()
			store.be("a", down)
			for range 3 {
				require.Error(t, calls[name](t.Context(), g, "a", limit))
			}
			store.be("a", func(context.Context) error { panic("of your own") })
			time.Sleep(time.Second)
			for range 3 {
				require.PanicsWithValue(t, "of your own", func() { _ = calls[name](t.Context(), g, "a", limit) })
				require.Error(t, g.Err("a", 0))
			}
			store.be("a", down)
			require.ErrorIs(t, calls[name](t.Context(), g, "a", limit), window.ErrUnavailable, "the trial")
			store.be("a", func(context.Context) error { panic("of your own") })
			time.Sleep(time.Second)
			require.Equal(t, 1, strings.Count(log.String(), `level=ERROR msg="throttr: the backend has panicked" store="" panic="of your own" stack=`))
			require.Contains(t, log.String(), "(*remote).call(")
			store.be("a", nil)
			require.NoError(t, calls[name](t.Context(), g, "a", limit))
			require.NoError(t, g.Err("a", 0))
		}
	})
}

// What is no decision waits longer for the store, but not for ever, and asks while the circuit is open.
func TestChangesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		g := guard(store)
		store.be("a", hang)
		for range 5 {
			require.Error(t, calls["hit"](t.Context(), g, "a", limit))
		}
		for name, change := range map[string]func(ctx context.Context) error{
			"set":    func(ctx context.Context) error { _, err := g.Set(ctx, "a", limit, 1); return err },
			"reset":  func(ctx context.Context) error { return g.Reset(ctx, "a", limit) },
			"delete": func(ctx context.Context) error { _, err := g.Delete(ctx, "a"); return err },
		} {
			begun := time.Now()
			require.ErrorIs(t, change(context.Background()), window.ErrUnavailable, name)
			require.Equal(t, 5*time.Second, time.Since(begun), name)
		}
		store.be("a", nil)
		time.Sleep(time.Hour) // a probe may be under way
	})
}

// A call that is not made says why others have failed, and not for which key.
func TestWhatIsNotAskedSaysWhy(t *testing.T) {
	of := func(err error) error {
		return &api.CallError{Package: "throttr", Call: "take", Key: "personal", Err: err}
	}
	away := fmt.Errorf("%w: down", window.ErrUnavailable)
	for text, cause := range map[string]error{
		"throttr: the store is unavailable: down":                      of(away),
		"throttr: the store is unavailable: errno":                     of(errors.New("errno")),
		"throttr: no answer within 1s: context deadline exceeded":      &outage.TimeoutError{After: time.Second, Err: of(context.DeadlineExceeded)},
		"throttr: no answer within 1s: the store is unavailable: down": &outage.TimeoutError{After: time.Second, Err: away},
	} {
		require.EqualError(t, outage.CauseOf(cause), text)
		require.ErrorIs(t, outage.CauseOf(cause), window.ErrUnavailable)
	}
}
