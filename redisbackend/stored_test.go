package redisbackend_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// stored returns the state of a limit: live, Max, what it holds, start, count, ID, more and last.
func stored(state ...float64) string {
	var all [8]float64
	copy(all[:], state)
	value, err := binary.Append(nil, binary.LittleEndian, all)
	if err != nil {
		panic(err)
	}
	return string(value)
}

func TestStoredWindowsAreAsDocumented(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	const scale, start = time.Hour, 1893456000000000
	now := time.UnixMicro(start)
	b := redisbackend.New(client, rediswindow.WithClock(func() time.Time { return now }))
	require := func(step, field string, state ...float64) {
		t.Helper()
		value, err := redis(t, client, "HGET", "throttr:{k:k}:v2", field).ToString()
		expect(t, err == nil && value == stored(state...), "after %s, %q is stored, want %v", step, value, state)
		now = now.Add(time.Second)
	}
	fixed := limitOf(window.FixedWindow, scale, 10)
	id := must(t, b.Set, "k", fixed, 2).ID
	require("Set", "f3600000000", start+3600e6, 10, 10, start, 2, float64(id))
	must(t, b.Hit, "k", fixed, 1)
	require("Hit", "f3600000000", start+3600e6, 10, 10, start, 3, float64(id))
	fixed.Max = 20
	must(t, b.Take, "k", fixed, 4)
	require("Take", "f3600000000", start+3600e6, 20, 20, start, 7, float64(id))
	given, err := b.GiveBack(t.Context(), "k", fixed, 1, id)
	expect(t, given && err == nil, "%v, %v", given, err)
	require("GiveBack", "f3600000000", start+3600e6, 20, 20, start, 6, float64(id))

	bucket := window.Limit{Name: "n", Max: 3600, Burst: 10, Scale: scale, Algorithm: window.TokenBucket} // a token a second
	must(t, b.Take, "k", bucket, 4)
	series := float64((start + 4_000_000) % 65536)
	require("a take of 4 tokens", "b3600000000:n", start+4e6+4e6+3600e6, 3600, 10, start+4e6, 4*3600e6, series, 4)
	must(t, b.Take, "k", bucket, 2)
	require("a take of 2 tokens", "b3600000000:n", start+4e6+4e6+3600e6, 3600, 10, start+5e6, 5*3600e6, series, 6)
}

func TestValuesThatAreNoWindows(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	b := redisbackend.New(client)
	l := limitOf(window.FixedWindow, time.Hour, 10)
	redis(t, client, "SET", "throttr:{k:string}:v2", "1")
	for what, err := range map[string]error{
		"hit":    errorOf(b.Hit(t.Context(), "string", l, 1)),
		"peek":   errorOf(b.Peek(t.Context(), "string", limitOf(window.TokenBucket, time.Hour, 10), 0)),
		"delete": errorOf(b.Delete(t.Context(), "string")),
	} {
		expect(t, err != nil && strings.HasPrefix(err.Error(), "rediswindow: "+what+` "string": WRONGTYPE`), "%v", err)
	}
	for _, value := range []string{
		"", "text", strings.Repeat("\x00", 63), strings.Repeat("\x00", 65), stored(0, 0, 0, 0, -1), stored(0, 0, 0, 0, math.NaN()), stored(math.Inf(1)), stored(0, 0, 0, math.Inf(-1)),
	} {
		redis(t, client, "HSET", "throttr:{k:k}:v2", "f3600000000", value)
		for _, err := range []error{errorOf(b.Hit(t.Context(), "k", l, 1)), errorOf(b.Peek(t.Context(), "k", l, 0))} {
			expect(t, err != nil && strings.Contains(err.Error(), "not a window"), "%q: %v", value, err)
		}
		windows := make([]window.Window, 2)
		err := errorOf(b.TakeAll(t.Context(), []window.Take{l.For("other", 1), l.For("k", 1)}, windows))
		expect(t, err != nil && strings.Contains(err.Error(), "not a window"), "%q: %v", value, err)
		expect(t, len(listed(t, b)) == 0, "%q is listed, or was half of what was taken", value)
		w := must(t, b.Set, "k", l, 5)
		expect(t, w.Count == 5, "%q is not replaced: %+v", value, w)
		noError(t, b.Reset(t.Context(), "k", l))
	}
	log := limitOf(window.SlidingLog, time.Hour, 10)
	must(t, b.Take, "log", log, 1)
	redis(t, client, "HDEL", "throttr:{k:log}:v2", "#0:l3600000000")
	redis(t, client, "HSET", "throttr:{k:damaged}:f1:", "s", "text")
	places := make([]window.Places, 1)
	for _, err := range []error{errorOf(b.Take(t.Context(), "log", log, 1)), b.Exchange(t.Context(), []window.Claim{{Key: "damaged"}}, places)} {
		expect(t, err != nil && !errors.Is(err, window.ErrUnavailable), "one damaged key is an outage: %v", err)
	}
	redis(t, client, "SET", "throttr:{k:string}:f1:", "1")
	expect(t, len(listed(t, b))+len(placesListed(t, b)) == 0, "what is damaged is listed")
}

// A hash may have fields of somebody else that look like those of limits.
func TestFieldsThatAreNoneOfALimit(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	b := redisbackend.New(client)
	must(t, b.Take, "k", limitOf(window.FixedWindow, time.Hour, 10), 1)
	for _, field := range []string{
		"f60:a\nb", "f60:\n1 2 x5", "f60:\n1 2 \x005", "w0", "f9999999999999999", "f99999999999999999999", "c3", "c3,17", "c0,0,", "c3,999,UTC", "c9,255,../:\n",
	} {
		redis(t, client, "HSET", "throttr:{k:k}:v2", field, stored(0, 10, 10))
		expect(t, len(listed(t, b)) == 1, "with %q", field)
	}
	n, err := b.Delete(t.Context(), "k")
	expect(t, n == 1 && err == nil, "%d, %v", n, err)
}

// listed returns what a backend lists of windows: key, limit and count.
func listed(t *testing.T, b *rediswindow.Backend, keys ...string) map[string]bool {
	t.Helper()
	n, all := 0, map[string]bool{}
	for l, err := range b.List(t.Context(), keys...) {
		n++
		noError(t, err)
		expect(t, l.Window.Left > 0 && !l.Window.Refused && l.Window.RetryAfter == 0, "%+v", l)
		all[fmt.Sprintf("%.20s %v %v %d", l.Key, l.Digest, l.Limit, l.Window.Count)] = true
	}
	expect(t, n <= len(all)+len(all)/8, "%d of %d are listed twice", n-len(all), len(all)) // Redis may do that, rarely
	return all
}

// placesListed returns what it lists of places in flight.
func placesListed(t *testing.T, b *rediswindow.Backend, keys ...string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for p, err := range b.ListPlaces(t.Context(), keys...) {
		noError(t, err)
		all[fmt.Sprintf("%.20s %v %q %d", p.Key, p.Digest, p.Name, p.Used)] = true
	}
	return all
}

// Some keys are on each of the nodes, and replicas have copies of them. The prefix has what means something in patterns.
func TestListOnACluster(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	for _, s := range c.Nodes() {
		for _, replica := range c.Replicas {
			await(t, "the client can't know of the replicas", func() bool { return strings.Contains(s.Must(t, "CLUSTER", "SLOTS"), replica.Port) })
		}
	}
	client := onCluster(t, c)
	b, other := redisbackend.New(client, rediswindow.WithPrefix("a[b]*:")), redisbackend.New(client)
	long := strings.Repeat("k", 129)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(long)))[:20]
	windows, places := map[string]bool{}, map[string]bool{}
	counts := []window.Limit{
		limitOf(window.SlidingLog, time.Hour, 10),
		{Name: "n:1", Max: 10, Burst: 20, Scale: time.Hour, Algorithm: window.TokenBucket},
		{Name: "n:1", Max: 10, Calendar: window.Month, Zone: "America/Port-au-Prince", StartDay: 17, Algorithm: window.CalendarWindow},
	}
	claim := window.Claim{Lease: time.Hour, Wants: []window.Want{{N: 2, Max: 5}}}
	for i := range 100 {
		claim.Key, claim.Name = fmt.Sprint("many ", i), []string{"", "n}:f1:"}[i%2]
		stored := claim.Key
		if i == 0 {
			claim.Key, stored = long, digest
		}
		l := counts[i%len(counts)]
		must(t, b.Charge, claim.Key, l, 3)
		exchange(t, b, claim)
		windows[fmt.Sprintf("%s %v %v 3", stored, i == 0, l)] = true
		places[fmt.Sprintf("%s %v %q 2", stored, i == 0, claim.Name)] = true
	}
	must(t, b.Take, "over", limitOf(window.FixedWindow, time.Millisecond, 10), 1)
	must(t, other.Take, "c", limitOf(window.FixedWindow, time.Hour, 10), 1)
	exchange(t, other, claim)
	time.Sleep(10 * time.Millisecond)
	gotWindows, gotPlaces := listed(t, b), placesListed(t, b)
	expect(t, maps.Equal(gotWindows, windows), "%v\nwant %v", gotWindows, windows)
	expect(t, maps.Equal(gotPlaces, places), "%v\nwant %v", gotPlaces, places)
	gotWindows, gotPlaces = listed(t, b, long, "nobody"), placesListed(t, b, "many 1", long, "c")
	expect(t, len(gotWindows) == 1 && len(gotPlaces) == 2, "%v\n%v", gotWindows, gotPlaces)
	for _, s := range c.Nodes() {
		s.Must(t, "ACL", "SETUSER", "default", "-scan")
	}
	for _, err := range b.List(t.Context()) {
		expect(t, errors.Is(err, window.ErrUnavailable), "%v", err)
	}
}
