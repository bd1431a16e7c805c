package redisbackend_test

import (
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
	claim := window.Claim{Process: "p", Seq: 1, Lease: time.Hour, Wants: []window.Want{{N: 2, Max: 5}}}
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
}
