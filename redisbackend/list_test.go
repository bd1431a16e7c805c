package redisbackend_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// listed returns what a backend lists: key, limit and count.
func listed(t *testing.T, b *rediswindow.Backend, keys ...string) map[string]uint64 {
	t.Helper()
	twice, all := 0, map[string]uint64{}
	for l, err := range b.List(t.Context(), keys...) {
		noError(t, err)
		expect(t, l.Window.Left > 0 && !l.Window.Refused && l.Window.RetryAfter == 0, "%+v", l)
		limit := fmt.Sprintf("%.20s %v %v", l.Key, l.Digest, l.Limit)
		if _, again := all[limit]; again { // Redis may do that, rarely
			twice++
		}
		all[limit] = l.Window.Count
	}
	expect(t, twice <= len(all)/8, "%d of %d are listed twice", twice, len(all))
	return all
}

func testList(t *testing.T, b, other *rediswindow.Backend) {
	long := strings.Repeat("k", 129)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(long)))
	want := map[string]uint64{}
	for i, key := range []string{"a", "b", long} {
		for a := window.FixedWindow; a <= window.SlidingLog; a++ {
			l := window.Limit{Name: []string{"", "n:1"}[i%2], Max: 10, Scale: time.Hour, Algorithm: a}
			if a == window.TokenBucket {
				l.Burst = 20
			}
			must(t, b.Take, key, l, uint64(i)+3)
			stored := key
			if key == long {
				stored = digest
			}
			want[fmt.Sprintf("%.20s %v %v", stored, key == long, l)] = uint64(i) + 3
		}
	}
	must(t, other.Take, "c", limitOf(window.FixedWindow, time.Hour, 10), 1)
	must(t, b.Take, "over", limitOf(window.FixedWindow, time.Millisecond, 10), 1)
	for i := range 100 { // more than a step
		key := fmt.Sprint("many ", i)
		must(t, b.Charge, key, limitOf(window.FixedWindow, time.Hour, 10), 11)
		want[fmt.Sprintf("%s %v %v", key, false, limitOf(window.FixedWindow, time.Hour, 10))] = 11
	}
	month := window.Limit{Name: "n:1", Max: 10, Calendar: window.Month, Zone: "America/Port-au-Prince", StartDay: 17, Algorithm: window.CalendarWindow}
	for _, l := range []window.Limit{month, {Max: 7, Calendar: window.Day, Algorithm: window.CalendarWindow}} {
		must(t, b.Take, "calendar", l, 2)
		want[fmt.Sprintf("%s %v %v", "calendar", false, l)] = 2
	}
	testPlacesListed(t, b, other)
	time.Sleep(10 * time.Millisecond)
	expect(t, fmt.Sprint(listed(t, b)) == fmt.Sprint(want), "%v\nwant %v", listed(t, b), want)
	expect(t, len(listed(t, b, "a", long, "nobody")) == 10, "%v", listed(t, b, "a", long, "nobody"))
	seen := 0
	for range b.List(t.Context()) {
		if seen++; seen == 3 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for l, err := range b.List(ctx) {
		expect(t, err != nil && l == window.Listed{}, "%+v, %v", l, err)
		errs++
	}
	expect(t, errs == 1, "%d errors", errs)
	b.Close()
	for _, err := range b.List(t.Context(), "a") {
		expect(t, err != nil && strings.HasPrefix(err.Error(), "rediswindow: list: "), "%v", err)
	}
}

// testPlacesListed compares the places of many keys with what ListPlaces returns.
func testPlacesListed(t *testing.T, b, other *rediswindow.Backend) {
	want := map[string]bool{}
	claim := func(b *rediswindow.Backend, key, name string) {
		exchange(t, b, window.Claim{Key: key, Name: name, Process: "p", Seq: 1, Lease: time.Hour, Wants: []window.Want{{N: 2, Max: 5}}})
	}
	for i := range 100 { // more than a step
		key, name := fmt.Sprint("many ", i), []string{"", "n}:f1:"}[i%2]
		claim(b, key, name)
		want[fmt.Sprintf("%q %q false 2", key, name)] = true
	}
	claim(other, "c", "")
	long := strings.Repeat("k", 129)
	claim(b, long, "")
	want[fmt.Sprintf("%q %q true 2", fmt.Sprintf("%x", sha256.Sum256([]byte(long))), "")] = true
	places := func(keys ...string) map[string]bool {
		all := map[string]bool{}
		for p, err := range b.ListPlaces(t.Context(), keys...) {
			noError(t, err)
			all[fmt.Sprintf("%q %q %v %d", p.Key, p.Name, p.Digest, p.Used)] = true
		}
		return all
	}
	expect(t, maps.Equal(places(), want), "%v\nwant %v", places(), want)
	expect(t, len(places("many 1", "many 3", long, "c")) == 3, "%v", places("many 1", "many 3", long, "c"))
}

func TestListReturnsWhatIsCounted(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	testList(t, redisbackend.New(client, rediswindow.WithPrefix("a[b]*:")), redisbackend.New(client))
}

// Some keys are on each of the nodes, and replicas have copies of them.
func TestListOnACluster(t *testing.T) {
	c := testkit.StartCluster(t, 3)
	for _, s := range c.Nodes() {
		for _, replica := range c.Replicas {
			await(t, "the client can't know of the replicas", func() bool { return strings.Contains(s.Must(t, "CLUSTER", "SLOTS"), replica.Port) })
		}
	}
	client := onCluster(t, c)
	testList(t, redisbackend.New(client), redisbackend.New(client, rediswindow.WithPrefix("other:")))
}
