package redisbackend_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// What is out of the bounds of scripts is an error that says so. The conformance suite requires the same one of all
// methods.
func TestBoundsOfScripts(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	b := redisbackend.New(client)
	at := func(now time.Time) *rediswindow.Backend {
		return redisbackend.New(client, rediswindow.WithClock(func() time.Time { return now }))
	}
	fixed := func(scale time.Duration, most uint64) window.Limit { return limitOf(window.FixedWindow, scale, most) }
	most := fixed(time.Hour, rediswindow.MaxCount)
	for _, test := range []struct {
		err, want error
		text      string
	}{
		{errorOf(b.Hit(t.Context(), "k", fixed(time.Hour, 1<<53), 1)), window.ErrRange, `hit "k": Max 9007199254740992 is out of range: it may be at most 2^53-1`},
		{errorOf(b.Charge(t.Context(), "k", most, 1<<53)), window.ErrRange, `charge "k": N 9007199254740992`},
		{errorOf(b.Set(t.Context(), "k", most, 1<<53)), window.ErrRange, "N 9007199254740992"},
		{errorOf(at(time.Time{}).Hit(t.Context(), "k", most, 1)), window.ErrRange, ""},
		{errorOf(at(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)).Hit(t.Context(), "k", most, 1)), window.ErrRange, ""},
		{errorOf(b.Check(fixed(-time.Second, 1))), window.ErrScale, "did you forget the unit?"},
		{errorOf(b.Check(fixed(time.Millisecond+1, 1))), window.ErrScale, "not a whole number of microseconds"},
		{errorOf(b.Check(fixed(time.Second+999, 1))), window.ErrScale, "not a whole number of microseconds"},
		{errorOf(b.Check(fixed(rediswindow.MaxScale+time.Microsecond, 1))), window.ErrScale, "more than 1250999h"},
		{errorOf(b.Delete(t.Context(), "k", time.Second, time.Second+1)), window.ErrScale, "not a whole number of microseconds"},
	} {
		expect(t, errors.Is(test.err, test.want) && strings.Contains(test.err.Error(), test.text), "%v; want %q", test.err, test.text)
	}
	w := must(t, b.Peek, "k", most, 0)
	expect(t, w == window.Window{}, "%+v", w)
	for _, scale := range []time.Duration{time.Millisecond, rediswindow.MaxScale} {
		w := must(t, b.Charge, "k", fixed(scale, 1), 1)
		expect(t, w.Count == 1 && w.Left == scale && time.Until(w.ExpiresAt) <= scale, "%v: %+v", scale, w)
	}
}
