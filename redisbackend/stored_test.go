package redisbackend_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// stored returns what is stored of a window: count, start and ID.
func stored(count, start, id float64) string {
	var value []byte
	for _, f := range []float64{count, start, id} {
		value = binary.LittleEndian.AppendUint64(value, math.Float64bits(f))
	}
	return string(value)
}

func TestStoredWindowsAreAsDocumented(t *testing.T) {
	client := startServer(t).connect()
	const scale = time.Hour
	now := time.UnixMicro(1893456000000000)
	b := redisbackend.New(client, rediswindow.WithClock(func() time.Time { return now }))
	var id int64
	require := func(step string, count float64) {
		t.Helper()
		value, err := redis(t, client, "HGET", "throttr:{k:k}:v1", "f3600000000").ToString()
		if want := stored(count, 1893456000000000, float64(id)); err != nil || value != want {
			t.Errorf("after %s, %q is stored, want %q: %v", step, value, want, err)
		}
	}
	must(t, b.Set, "k", limitOf(window.FixedWindow, scale, 10), 2)
	w := must(t, b.Peek, "k", limitOf(window.FixedWindow, scale, 10), 0)
	id = w.ID
	require("Set", 2)
	now = now.Add(time.Second)
	must(t, b.Hit, "k", limitOf(window.FixedWindow, scale, 10), 1)
	require("Hit", 3)
	now = now.Add(time.Second)
	must(t, b.Take, "k", limitOf(window.FixedWindow, scale, 10), 4)
	require("Take", 7)
	now = now.Add(time.Second)
	if ok, err := b.GiveBack(t.Context(), "k", limitOf(window.FixedWindow, scale, 10), 1, id); !ok || err != nil {
		t.Fatal(ok, err)
	}
	require("GiveBack", 6)
}

func TestWindowsThatAreFullStayFull(t *testing.T) {
	b := redisbackend.New(startServer(t).connect())
	must(t, b.Set, "k", limitOf(window.FixedWindow, time.Hour, 10), rediswindow.MaxCount)
	w, err := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 2)
	expect(t, err == nil && w.Refused && w.Count == rediswindow.MaxCount, "%+v, %v", w, err)
	if ok, err := b.GiveBack(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 1, w.ID); ok || err != nil {
		t.Errorf("what was counted is not known, and is given back: %v, %v", ok, err)
	}
}

// What another version stores is neither read nor changed.
func TestVersionsMisreadNothing(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	others := [][2]string{{"throttr:{k:k}", "3600000000"}, {"throttr:{k:k}", "f3600000000"}, {"throttr:{k:k}:v2", "f3600000000"}}
	for _, other := range others {
		redis(t, client, "HSET", other[0], other[1], "of another version")
	}
	w := must(t, b.Hit, "k", limitOf(window.FixedWindow, time.Hour, 10), 1)
	expect(t, w.Count == 1, "%+v", w)
	mustDelete(t, b, "k")
	for _, other := range others {
		value, err := redis(t, client, "HGET", other[0], other[1]).ToString()
		noError(t, err)
		expect(t, value == "of another version", "%s is %q", other, value)
	}
}

func TestValuesThatAreNoWindows(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	for _, value := range []string{
		"", "text", strings.Repeat("\x00", 23), strings.Repeat("\x00", 25), strings.Repeat("\x00", 33),
		stored(-1, 1, 1), stored(math.NaN(), 1, 1), stored(math.Inf(1), 1, 1), stored(1<<53+2, 1, 1),
		stored(1, math.NaN(), 1), stored(1, math.Inf(1), 1), stored(1, math.Inf(-1), 1),
	} {
		redis(t, client, "HSET", "throttr:{k:k}:v1", "f3600000000", value)
		for name, call := range map[string]func() error{
			"Hit": func() error {
				_, err := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 1)
				return err
			},
			"Get": func() error {
				_, err := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 0)
				return err
			},
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "not a window") {
				t.Errorf("%s of %q returns %v", name, value, err)
			}
		}
	}
}
