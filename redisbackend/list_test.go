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

// testList compares windows and places of many keys with what is listed. The backends have other prefixes.
func testList(t *testing.T, b, other *rediswindow.Backend) {
	long := strings.Repeat("k", 129)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(long)))[:20]
	windows, places := map[string]bool{}, map[string]bool{}
	counts := func(key, stored string, l window.Limit) {
		must(t, b.Charge, key, l, 3)
		windows[fmt.Sprintf("%s %v %v 3", stored, key == long, l)] = true
	}
	claim := window.Claim{Process: "p", Seq: 1, Lease: time.Hour, Wants: []window.Want{{N: 2, Max: 5}}}
	claims := func(key, stored, name string) {
		claim.Key, claim.Name = key, name
		exchange(t, b, claim)
		places[fmt.Sprintf("%s %v %q 2", stored, key == long, name)] = true
	}
	for i, key := range []string{"a", "b", long} {
		stored := []string{"a", "b", digest}[i]
		for a := window.FixedWindow; a <= window.SlidingLog; a++ {
			l := window.Limit{Name: []string{"", "n:1"}[i%2], Max: 10, Scale: time.Hour, Algorithm: a}
			if a == window.TokenBucket {
				l.Burst = 20
			}
			counts(key, stored, l)
		}
		claims(key, stored, "")
	}
	for i := range 100 { // more than a step
		key := fmt.Sprint("many ", i)
		counts(key, key, limitOf(window.FixedWindow, time.Hour, 2))
		claims(key, key, []string{"", "n}:f1:"}[i%2])
	}
	counts("calendar", "calendar", window.Limit{Name: "n:1", Max: 10, Calendar: window.Month, Zone: "America/Port-au-Prince", StartDay: 17, Algorithm: window.CalendarWindow})
	counts("calendar", "calendar", window.Limit{Max: 7, Calendar: window.Day, Algorithm: window.CalendarWindow})
	must(t, b.Take, "over", limitOf(window.FixedWindow, time.Millisecond, 10), 1)
	must(t, other.Take, "c", limitOf(window.FixedWindow, time.Hour, 10), 1)
	exchange(t, other, claim)
	time.Sleep(10 * time.Millisecond)

	gotWindows, gotPlaces := listed(t, b), placesListed(t, b)
	expect(t, maps.Equal(gotWindows, windows), "%v\nwant %v", gotWindows, windows)
	expect(t, maps.Equal(gotPlaces, places), "%v\nwant %v", gotPlaces, places)
	expect(t, len(listed(t, b, "a", long, "nobody")) == 10, "%v", listed(t, b, "a", long, "nobody"))
	expect(t, len(placesListed(t, b, "many 1", "many 3", long, "c")) == 3, "%v", placesListed(t, b, "many 1", "many 3", long, "c"))
	for range b.List(t.Context()) {
		break
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

func TestListReturnsWhatIsCounted(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	testList(t, redisbackend.New(client, rediswindow.WithPrefix("a[b]*:")), redisbackend.New(client))
}

// Some keys are on each of the nodes, and replicas have copies of them.
func TestListOnACluster(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	for _, s := range c.Nodes() {
		for _, replica := range c.Replicas {
			await(t, "the client can't know of the replicas", func() bool { return strings.Contains(s.Must(t, "CLUSTER", "SLOTS"), replica.Port) })
		}
	}
	client := onCluster(t, c)
	testList(t, redisbackend.New(client), redisbackend.New(client, rediswindow.WithPrefix("other:")))
}
