package throttr

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
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
	calls := conn.NewCalls(nil)
	o := poolOptions("s:1", cfg, calls)
	at := dial.Address{Network: "tcp", Address: "s:1"}
	require.Equal(t, dial.Target{Server: "s:1", Address: at, Dialer: o.Dialer, Calls: calls}, o.Target)
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

// Each field of a response is in the field of its name, or is one of others.
func TestInspectionsHaveTheFieldsOfResponses(t *testing.T) {
	list := conn.Record{Key: []byte("k"), Buffer: true}
	connection := codec.ConnectionInfo{IP: "127.0.0.1"}
	channel := codec.ChannelsEntry{Name: []byte("c")}
	var info codec.InfoResponse
	var stats codec.StatsEntry
	var subscribed codec.Subscriber
	n := uint64(0)
	for _, of := range []any{&list, &connection, &channel, &info, &stats, &subscribed} {
		number(reflect.ValueOf(of).Elem(), &n)
	}
	for _, test := range []struct {
		response, inspected any
		others              []string
	}{
		{info, serverInfo("a:1", info), []string{"Timestamp", "RunningSince"}},
		{stats, keyStatsEntry("a:1", stats), []string{"Key", "Usage"}},
		{list, listEntry("a:1", list), []string{"Key", "Buffer", "Expires", "Bytes"}},
		{connection, connectionEntry("a:1", connection), []string{"Transport", "IPVersion", "IP", "Port", "Connected"}},
		{channel, channelEntry("a:1", channel), []string{"Name"}},
		{subscribed, subscriber("a:1", subscribed), []string{"Since"}},
	} {
		want, got := reflect.ValueOf(test.response), reflect.ValueOf(test.inspected)
		require.Equal(t, "a:1", got.FieldByName("Server").String())
		var others []string
		for i := range want.NumField() {
			name := want.Type().Field(i).Name
			if f := got.FieldByName(name); f.IsValid() && f.Type() == want.Field(i).Type() {
				require.Equal(t, want.Field(i).Interface(), f.Interface(), name)
			} else {
				others = append(others, name)
			}
		}
		require.Equal(t, test.others, others, "%T", test.response)
	}
	at := func(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }
	require.Equal(t, time.Unix(int64(info.Timestamp), 0).UTC(), serverInfo("", info).Time)
	require.Equal(t, at(info.RunningSince), serverInfo("", info).RunningSince)
	require.Equal(t, stats.Usage, codec.Usage(keyStatsEntry("", stats).Usage))
	record := listEntry("", list)
	require.Equal(t, []any{"k", "buffer", at(list.Expires), uint64(list.Bytes)}, []any{record.Key, record.Kind.String(), record.ExpiresAt, record.BytesUsed})
	c := connectionEntry("", connection)
	require.Equal(t, []any{connection.Transport, "127.0.0.1", connection.Port, at(connection.Connected)}, []any{c.Kind, c.Addr.Addr().String(), c.Addr.Port(), c.ConnectedAt})
	require.Equal(t, "c", channelEntry("", channel).Name)
	require.Equal(t, at(subscribed.Since), subscriber("", subscribed).Since)
}

// number gives each number in v another value.
func number(v reflect.Value, n *uint64) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			number(v.Field(i), n)
		}
	case v.CanUint():
		*n++
		v.SetUint(*n)
	}
}
