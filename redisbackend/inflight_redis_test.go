package redisbackend_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// handOver returns how long it takes from a release to the next holder in another process: the median of some rounds.
func handOver(t *testing.T, one, two *inflight.Limiter, limit inflight.Limit, rounds int) time.Duration {
	var all []time.Duration
	for range rounds {
		h := acquired(t, one, "k", limit, limit.Max)
		got := make(chan time.Time)
		go func() {
			h := acquired(t, two, "k", limit, 1)
			got <- time.Now()
			h.Release()
		}()
		await(t, "nobody waits", func() bool {
			s, err := one.Peek(context.Background(), "k", limit)
			return err == nil && s.Waiting == 1
		})
		start := time.Now()
		h.Release()
		all = append(all, (<-got).Sub(start))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// The next holder does not wait for the next time that its process asks, unless the client can't subscribe.
func TestAReleaseWakesTheNextHolder(t *testing.T) {
	s := testkit.StartRedis(t)
	limit := inflight.Limit{Name: "two words", Max: 1, Lease: 4 * time.Second} // who waits asks every 500 ms
	one, two := newInFlight(t, redisbackend.New(connect(t, s))), newInFlight(t, redisbackend.New(connect(t, s)))
	handOver(t, one, two, limit, 3) // until the subscription is there
	took := handOver(t, one, two, limit, 9)
	expect(t, took < 100*time.Millisecond, "the next holder waits for %v", took)
	mute := newInFlight(t, rediswindow.New(plainClient{connect(t, s)}))
	took = handOver(t, one, mute, limit, 3)
	expect(t, took > 10*time.Millisecond, "somebody woke the next holder: %v", took)
}

// The first in line is woken once, when there is room for it, until it asks again. It is not woken by those behind it
// while nothing may be granted, although there is room.
func TestWhoIsWoken(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	seq := uint64(0)
	claim := func(c window.Claim, published int) {
		t.Helper()
		seq++
		c.Key = fmt.Sprint("strict: ", c.Strict)
		c.Seq = seq
		c.Lease = time.Minute
		c.HeldMax = 5
		c.Wake = func() {}
		p := exchange(t, b, c)
		expect(t, !c.Strict || p.Grace > 0 && p.Used == 0, "%+v", p)
		got := timesCalled(t, s, "publish")
		expect(t, got == published, "%+v: %d PUBLISH, want %d", c, got, published)
	}
	for range 3 {
		for _, process := range []string{"first", "second"} {
			claim(window.Claim{Process: process, Strict: true, Wants: []window.Want{{N: 1, Max: 5, Wait: true}}}, 0)
		}
	}
	claim(window.Claim{Process: "holds", Wants: []window.Want{{N: 5, Max: 5}}}, 0)
	for round := range 2 {
		claim(window.Claim{Process: "waits", Wants: []window.Want{{N: 2, Max: 5, Wait: true}}}, round)
		for i, held := range []uint64{5, 4, 3, 2, 5} { // the third one makes room
			claim(window.Claim{Process: "holds", Held: held}, round+min(i/2, 1))
		}
	}
}

// What is wrong with one key is no error of the claims that share its script, not even if the data set is verified.
func TestAClaimThatFailsFailsAlone(t *testing.T) {
	for want, command := range map[string][]string{
		"WRONGTYPE": {"SET", "throttr:{k:bad}:f1:", "text"},
		"NOPERM":    {"ACL", "SETUSER", "default", "resetkeys", "~throttr:{k:good*", "~throttr:{b}:born1"},
	} {
		s := testkit.StartRedis(t)
		b := redisbackend.New(connect(t, s))
		s.Must(t, command...)
		var claims []window.Claim
		for i, key := range []string{"good", "bad", "good too"} {
			claims = append(claims, window.Claim{Key: key, Process: "p", Seq: uint64(i + 1), Lease: time.Second, Wants: []window.Want{{N: 1, Max: 5}}})
		}
		places := make([]window.Places, 3)
		noError(t, b.Exchange(t.Context(), claims, places))
		for _, i := range []int{0, 2} {
			expect(t, places[i].Err == nil && !places[i].Late && places[i].Tokens != nil, "%s: %+v", claims[i].Key, places[i])
		}
		err := places[1].Err
		expect(t, err != nil && strings.HasPrefix(err.Error(), `rediswindow: exchange "bad": `+want), "%v", err)
	}
}

// What is stored does not grow with the places, and goes away.
func TestPlacesInFlightTakeLittleMemory(t *testing.T) {
	s := testkit.StartRedis(t)
	limit := inflight.Limit{Max: 20_000, Lease: time.Second}
	l := newInFlight(t, redisbackend.New(connect(t, s)))
	var holds []*inflight.Hold
	for range 100 {
		holds = append(holds, acquired(t, l, "k", limit, 100))
	}
	bytes, err := strconv.Atoi(s.Must(t, "MEMORY", "USAGE", "throttr:{k:k}:f1:"))
	expect(t, err == nil && bytes < 1000, "10,000 places take %d bytes: %v", bytes, err)
	for _, h := range holds {
		h.Release()
	}
	await(t, "the hash stays", func() bool { return s.Must(t, "EXISTS", "throttr:{k:k}:f1:") == "0" })
}

// A hash lives as long as what it holds is renewed, and a lease more.
func TestAHashOfRenewedPlacesStays(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	const lease = 600 * time.Millisecond
	seq := uint64(0)
	claim := func(held uint64) window.Claim {
		seq++
		return window.Claim{Key: "k", Process: "p", Seq: seq, Lease: lease, Held: held, HeldMax: 2}
	}
	for start := time.Now(); time.Since(start) < 3*lease; time.Sleep(lease / 8) {
		p := exchange(t, b, claim(2))
		expect(t, p.Used == 2 && p.Forgotten == (seq == 1), "claim %d: %+v", seq, p)
		left, err := strconv.ParseInt(s.Must(t, "PTTL", "throttr:{k:k}:f1:"), 10, 64)
		noError(t, err)
		expect(t, left > lease.Milliseconds(), "the hash expires in %d ms, though its places end in %v", left, lease)
	}
	p := exchange(t, b, claim(0))
	expect(t, p.Used == 0, "%+v", p)
}

// As it takes long, a claim looks whether its data set is that of the server only if the server does not know all places
// that are held, or if it is strict: also one that only renews, so that the wait of a lease is over when places are wanted.
func TestPlacesThatAreNotKnownShowAnotherDataSet(t *testing.T) {
	const birth = 1_000_000
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	want := []window.Want{{N: 1, Max: 5}}
	for i, step := range []struct {
		held           uint64
		strict         bool
		wants          []window.Want
		looks, forgets bool
	}{
		{held: 0, wants: want},
		{held: 1, wants: want}, // this is known
		{held: 3, wants: want, looks: true, forgets: true},
		{held: 4},
		{held: 4, strict: true, looks: true},
		{held: 0, strict: true},
	} {
		s.Must(t, "SET", "throttr:{b}:born1", fmt.Sprint("0 ", birth)) // by another server
		p := exchange(t, b, window.Claim{
			Key: "k", Process: "p", Seq: uint64(i + 1), Lease: time.Minute, HeldMax: 5,
			Held: step.held, Strict: step.strict, Wants: step.wants,
		})
		looked := p.DataSet != birth
		expect(t, looked == step.looks && p.Forgotten == step.forgets, "%+v: %+v", step, p)
		expect(t, (p.Grace > 0) == (step.strict && looked) && len(p.Tokens) == len(step.wants), "%+v: %+v", step, p)
	}
}
