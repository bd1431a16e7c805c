package redisbackend_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
)

// stored returns what is stored of a window: a byte 1, and count, start, last update and ID.
func stored(count, start, updated, id float64) string {
	value := []byte{1}
	for _, f := range []float64{count, start, updated, id} {
		value = binary.LittleEndian.AppendUint64(value, math.Float64bits(f))
	}
	return string(value)
}

func TestStoredWindowsAreAsDocumented(t *testing.T) {
	client := startServer(t).connect()
	const scale = time.Hour
	now := time.UnixMicro(1893456000000000)
	b := redisbackend.New(client, redisbackend.WithClock(func() time.Time { return now }))
	var id int64
	require := func(step string, count, updated float64) {
		t.Helper()
		value, err := redis(t, client, "HGET", "throttr:{k:k}", "3600000000").ToString()
		if want := stored(count, 1893456000000000, updated, float64(id)); err != nil || value != want {
			t.Errorf("after %s, %q is stored, want %q: %v", step, value, want, err)
		}
	}
	if _, err := b.Set(t.Context(), "k", scale, 2); err != nil {
		t.Fatal(err)
	}
	w, err := b.Get(t.Context(), "k", scale)
	if err != nil {
		t.Fatal(err)
	}
	id = w.ID
	require("Set", 2, 1893456000000000)
	now = now.Add(time.Second)
	if _, err := b.Hit(t.Context(), "k", scale, 10, 1); err != nil {
		t.Fatal(err)
	}
	require("Hit", 3, 1893456001000000)
	now = now.Add(time.Second)
	if _, _, err := b.Take(t.Context(), "k", scale, 10, 4); err != nil {
		t.Fatal(err)
	}
	require("Take", 7, 1893456002000000)
	now = now.Add(time.Second)
	if ok, err := b.GiveBack(t.Context(), "k", scale, id, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	require("GiveBack", 6, 1893456002000000)
}

func TestWindowsThatAreFullStayFull(t *testing.T) {
	b := redisbackend.New(startServer(t).connect())
	if _, err := b.Set(t.Context(), "k", time.Hour, redisbackend.MaxCount); err != nil {
		t.Fatal(err)
	}
	w, err := b.Hit(t.Context(), "k", time.Hour, 10, 2)
	if err != nil || w.Count != redisbackend.MaxCount+1 {
		t.Fatalf("%+v, %v", w, err)
	}
	if ok, err := b.GiveBack(t.Context(), "k", time.Hour, w.ID, 1); ok || err != nil {
		t.Errorf("what was counted is not known, and is given back: %v, %v", ok, err)
	}
}

// Earlier versions have stored text, at first without an ID.
func TestWindowsOfEarlierVersions(t *testing.T) {
	s := startServer(t)
	client := s.connect()
	b := redisbackend.New(client)
	start := time.Now().UnixMicro()
	for name, test := range map[string]struct {
		value string
		id    int64
	}{
		"without ID": {fmt.Sprintf("3 %d %d", start, start), 0},
		"with ID":    {fmt.Sprintf("3 %d %d 4627519830275", start, start), 4627519830275},
		"33 bytes":   {fmt.Sprintf("3 %d %d 12", start, start/1e5), 12}, // as many as today
	} {
		if n := len(test.value); name == "33 bytes" && n != 33 {
			t.Fatalf("%q has %d bytes", test.value, n)
		}
		redis(t, client, "HSET", "throttr:{k:"+name+"}", "3600000000", test.value)
		if w, err := b.Get(t.Context(), name, time.Hour); err != nil || w.Count != 3 || w.ID != test.id || w.StartedAt.UnixMicro() != start {
			t.Fatalf("%s: %+v, %v", name, w, err)
		}
		for _, want := range []uint64{4, 5} {
			w, err := b.Hit(t.Context(), name, time.Hour, 10, 1)
			if err != nil || w.Count != want || w.ID != test.id {
				t.Fatalf("%s: %+v, %v", name, w, err)
			}
		}
		w, granted, err := b.Take(t.Context(), name, time.Hour, 10, 2)
		if err != nil || !granted || w.Count != 7 || w.ID != test.id {
			t.Fatalf("%s: %+v, %v, %v", name, w, granted, err)
		}
		if ok, err := b.GiveBack(t.Context(), name, time.Hour, w.ID, 2); ok != (test.id != 0) || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

func TestValuesThatAreNoWindows(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	for _, value := range []string{
		"", "text", "\x01", "\x02" + strings.Repeat("\x00", 32), "\x01" + strings.Repeat("\x00", 33),
		stored(-1, 1, 1, 1), stored(math.NaN(), 1, 1, 1), stored(math.Inf(1), 1, 1, 1), stored(1<<53+2, 1, 1, 1),
		stored(1, math.NaN(), 1, 1), stored(1, math.Inf(1), 1, 1), stored(1, math.Inf(-1), 1, 1),
	} {
		redis(t, client, "HSET", "throttr:{k:k}", "3600000000", value)
		for name, call := range map[string]func() error{
			"Hit": func() error { _, err := b.Hit(t.Context(), "k", time.Hour, 10, 1); return err },
			"Get": func() error { _, err := b.Get(t.Context(), "k", time.Hour); return err },
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "not a window") {
				t.Errorf("%s of %q returns %v", name, value, err)
			}
		}
	}
}
