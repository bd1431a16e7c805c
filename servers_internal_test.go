package throttr

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/pool"
)

// What the fields of a Config mean is tested where they are used. Each of them arrives there.
func TestPoolsAndSubscriptionsHaveTheFieldsOfAConfig(t *testing.T) {
	cfg := Config{Logger: slog.New(slog.DiscardHandler), Parking: ParkingAlways}
	fields := reflect.ValueOf(&cfg).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(int64(i + 1))
		case reflect.Int64:
			f.SetInt(int64(i+1) * int64(time.Hour))
		}
	}
	o := poolOptions("s:1", cfg, new(conn.Calls))
	require.Equal(t, cfg.ConnectTimeout, o.Dialer.Timeout)
	p := pool.New(o)
	defer p.Close()
	for _, options := range []any{o, subscriptionOptions("s:1", cfg, p)} {
		got := reflect.ValueOf(options)
		for i := range got.NumField() {
			name := got.Type().Field(i).Name
			require.False(t, got.Field(i).IsZero(), name)
			if of := fields.FieldByName(name); of.IsValid() && of.CanInt() {
				require.Equal(t, of.Int(), got.Field(i).Int(), name)
			}
		}
	}
}

// numbered returns the addresses 10.0.0.1:9000 to 10.0.0.n:9000.
func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.0.%d:9000", i+1)
	}
	return out
}

var goldenScores = []struct {
	server, key string
	score       uint64
}{
	{"127.0.0.1:9000", "", 0x600a32039e51c8ea},
	{"127.0.0.1:9000", "k", 0xcdf85c338a0b3820},
	{"127.0.0.1:9000", "user:42", 0xdd39b5e92c7c623e},
	{"127.0.0.1:9000", "ключ", 0x7c30d7e488580630},
	{"unix:///run/throttr.sock", "k", 0x87d57c8d49518381},
	{"unix:///run/throttr.sock", "ключ", 0xc757034dfdcfabf7},
	{"[::1]:9000", "user:42", 0x758666911c1e963c},
}

// goldenPicks are the servers of keys on 10.0.0.1:9000 to 10.0.0.5:9000.
var goldenPicks = map[string]string{
	"":         "10.0.0.2:9000",
	"k":        "10.0.0.1:9000",
	"user:42":  "10.0.0.4:9000",
	"10.1.2.3": "10.0.0.1:9000",
	"ключ":     "10.0.0.4:9000",
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": "10.0.0.1:9000",
}

// The scores are part of the released interface, and docs/internals/design.md lists some of them. If
// this test fails, programs of different versions disagree where a key lives: change the
// code, never the numbers. Any implementation of FNV-1a 64 and SplitMix64 confirms them; its
// input is, for example, "127.0.0.1:9000\x00user:42".
func TestScoresNeverChange(t *testing.T) {
	for _, v := range goldenScores {
		require.Equal(t, v.score, score(newRendezvous([]string{v.server})[0], v.key), "%q on %q", v.key, v.server)
	}
	servers := numbered(5)
	for key, want := range goldenPicks {
		require.Equal(t, want, servers[newRendezvous(servers).pick(key)], "%q", key)
	}
}

// The order of the servers does not matter.
func TestRemovingAServerMovesOnlyItsOwnKeys(t *testing.T) {
	servers := numbered(6)
	before := newRendezvous(servers)
	left := append(append([]string(nil), servers[:2]...), servers[3:]...)
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	after := newRendezvous(left)
	moved := map[string]int{}
	for i := range 10_000 {
		key := fmt.Sprintf("user:%d", i)
		was, is := servers[before.pick(key)], left[after.pick(key)]
		if was != servers[2] {
			require.Equal(t, was, is, key)
			continue
		}
		moved[is]++
	}
	require.Len(t, moved, 5, "its keys move to all the others")
}
