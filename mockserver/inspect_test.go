package mockserver_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/codec/uint8"
	"github.com/throttr-go/throttr/mockserver"
)

func TestRecordsCanBeReadAndWritten(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, mockserver.Epoch, srv.Now())
		require.Empty(t, srv.Keys())
		srv.Set("b", 7, time.Minute)
		srv.Set("a", 9, 1500*time.Millisecond)
		require.Equal(t, "01"+"0700"+"03"+"5fea", w.ask(query("b")), "60 s are 59,999 ms and a bit")
		require.Equal(t, "01", w.ask(uint16.Set{Key: []byte("c"), TTL: uint16.TTL{Amount: 1, Unit: codec.Hours}, Value: []byte("v")}))
		require.Equal(t, []string{"a", "b", "c"}, srv.Keys())

		counter := func(key string) string { return fmt.Sprint(srv.Counter(key)) }
		require.Equal(t, "9 true", counter("a"))
		require.Equal(t, "0 false", counter("c"), "a buffer is not a counter")
		require.Equal(t, "0 false", counter("missing"))

		srv.Advance(time.Second)
		require.Equal(t, "500ms true", fmt.Sprint(srv.TTL("a")))
		srv.Advance(500 * time.Millisecond)
		require.Equal(t, "0s false", fmt.Sprint(srv.TTL("a")))
		require.Equal(t, "0 false", counter("a"))
		require.Equal(t, 1, srv.Expired())

		require.True(t, srv.Delete("a"), "Delete removes dead records, too")
		require.False(t, srv.Delete("a"))
		require.Equal(t, "01", w.ask(insert("a", 1, 1, codec.Hours)))
		srv.Set("a", 2, time.Hour)
		require.Equal(t, "2 true", counter("a"))
		require.Panics(t, func() { srv.Set("a", 65536, time.Hour) })
		require.Panics(t, func() { srv.Set(strings.Repeat("a", 256), 1, time.Hour) }, "no LIST could return it")
		require.Equal(t, mockserver.Epoch.Add(1500*time.Millisecond), srv.Now())
		srv.Advance(math.MaxInt64)
		require.Equal(t, 2322, srv.Now().Year(), "beyond what fits ns in an int64")
		require.Panics(t, func() { srv.Advance(-1) })
	}, virtual)
}

func TestSetChoosesTheFinestUnitThatFits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		for ttl, want := range map[time.Duration]string{
			200 * time.Nanosecond: "01" + "c7",
			time.Millisecond:      "03" + "00",
			time.Second:           "04" + "00",
			time.Minute:           "04" + "3b",
			5 * time.Minute:       "05" + "04",
			300 * time.Hour:       "06" + "2b", // 299 modulo 256
		} {
			srv.Set("k", 1, ttl)
			require.Equal(t, "01"+"01"+want, w.ask(query("k")), "%v", ttl)
		}
		require.Equal(t, "01", w.ask(uint8.Insert{Key: []byte("l"), TTL: uint8.TTL{Amount: 1, Unit: codec.Hours}}))
		require.Panics(t, func() { srv.Publish("*", make([]byte, 256)) }, "the payload does not fit")
	}, virtual, mockserver.WithValueSize(1))
}

func TestObserverSeesExecutedRequests(t *testing.T) {
	var seen []mockserver.Exec
	var srv *mockserver.Server
	observe := func(e mockserver.Exec) {
		require.Equal(t, e.Time, srv.Now(), "the observer may call Now")
		seen = append(seen, e)
	}
	bubble(t, func(t *testing.T, s *mockserver.Server) {
		srv = s
		w := connect(t, s)
		s.Advance(time.Second)
		w.ask(insert("k", 5, 1, codec.Hours), increase("k", 2))
		w2 := connect(t, s)
		w2.ask(query("k"), purge("k"), purge("k"))
		w2.ask(uint16.Set{Key: []byte("b"), TTL: uint16.TTL{Amount: 1, Unit: codec.Hours}}, codec.Get{Key: []byte("b")})
		w.ask(query("k"))
	}, virtual, mockserver.WithObserver(observe))

	var got []string
	for _, e := range seen {
		require.Equal(t, mockserver.Epoch.Add(time.Second), e.Time)
		require.Equal(t, e.Op, e.Request.Op())
		got = append(got, fmt.Sprintf("%d %v %s %v %d", e.Conn, e.Op, e.Key, e.Status, e.Quota))
	}
	require.Equal(t, []string{
		"1 INSERT k true 5", "1 UPDATE k true 7",
		"2 QUERY k true 7", "2 PURGE k true 0", "2 PURGE k false 0", "2 SET b true 0", "2 GET b true 0",
		"1 QUERY k false 0",
	}, got)
	require.Equal(t, uint16.Value(5), seen[0].Request.(uint16.Insert).Quota)
}
