package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// operation is a kind of call that faults befall. Start prepares it, and returns the call
// and what is to be done when all are over and the client is closed.
type operation struct {
	name  string
	start func(x *trial) (made call, end func())
}

var operations = []operation{
	{"Single requests", startRequests},
	{"Batches", startBatches},
	{"Subscriptions", startSubscriptions},
	{"Hits, an error without an answer", hitting(nil)},
	{"Hits, allowed without an answer", hitting(func(*trial) throttr.Option { return throttr.WithPolicy(throttr.AllowHits) })},
	{"Hits, denied without an answer", hitting(func(*trial) throttr.Option { return throttr.WithPolicy(throttr.DenyHits) })},
	{"Hits, with a fallback", hitting(func(x *trial) throttr.Option {
		b := memory.New()
		x.Cleanup(func() { b.Close() })
		return throttr.WithFallback(b)
	})},
}

// writes are the requests that change something: those that only read may be repeated.
var writes = []codec.Op{codec.OpInsert, codec.OpUpdate, codec.OpPurge, codec.OpSet}

func (x *trial) verdict(right bool) verdict {
	if right {
		return rightAnswer
	}
	return wrongAnswer
}

// startRequests makes one request of six kinds per call, on a key of its own. Half of the
// keys exist.
func startRequests(x *trial) (call, func()) {
	for n := range trialRounds * callsPerRound {
		if n/6%2 == 0 {
			x.srv.Set(strconv.Itoa(n), uint64(n), time.Minute)
		}
	}
	made := func(ctx context.Context, n int) (verdict, bool, error) {
		c, key := x.client, strconv.Itoa(n)
		var op codec.Op
		var ok bool
		var quota uint16
		var err error
		switch n % 6 {
		case 0:
			op = codec.OpInsert
			ok, err = c.Insert(ctx, key, 1, testkit.Minute)
		case 1:
			var r throttr.Counter[uint16]
			op = codec.OpQuery
			r, ok, err = c.Query(ctx, key)
			quota = r.Quota
		case 2:
			op = codec.OpUpdate
			ok, err = c.Update(ctx, key, codec.Quota, codec.Increase, 1)
		case 3:
			op = codec.OpPurge
			ok, err = c.Purge(ctx, key)
		case 4:
			op = codec.OpSet
			ok, err = c.Set(ctx, key, []byte(key), testkit.Minute)
		case 5:
			op = codec.OpGet
			_, ok, err = c.Get(ctx, key)
		}
		return x.verdict(x.truth.answered(op, key, ok, quota)), len(x.truth.of(op, key)) > 0, err
	}
	return made, func() { x.cell.twice = x.truth.repeated(writes...) }
}

// startBatches makes a batch of four requests per call. They fit the client's only
// connection many times.
func startBatches(x *trial) (call, func()) {
	made := func(ctx context.Context, n int) (verdict, bool, error) {
		key, none := strconv.Itoa(n), "none:"+strconv.Itoa(n)
		var b throttr.Batch[uint16]
		insert := b.Insert(key, uint16(n), testkit.Minute)
		update := b.Update(none, codec.Quota, codec.Increase, 1)
		query := b.Query(key)
		purge := b.Purge(none)
		err := x.client.Do(ctx, &b)
		right := true
		for _, r := range []struct {
			op    codec.Op
			key   string
			reply throttr.Reply[uint16]
		}{{codec.OpInsert, key, insert}, {codec.OpUpdate, none, update}, {codec.OpPurge, none, purge}} {
			ok, err := r.reply.OK()
			right = right && (err != nil || x.truth.answered(r.op, r.key, ok, 0))
		}
		c, ok, failed := query.Counter()
		right = right && (failed != nil || x.truth.answered(codec.OpQuery, key, ok, c.Quota))
		return x.verdict(right), len(x.truth.of(codec.OpInsert, key)) > 0, err
	}
	return made, func() { x.cell.twice = x.truth.repeated(writes...) }
}

// startSubscriptions subscribes to a channel of its own per call, has a message published
// there, and takes it. Another subscription stays, and must never be given a message
// twice, or one of another channel.
func startSubscriptions(x *trial) (call, func()) {
	var mu sync.Mutex
	published := 0
	publish := func() {
		mu.Lock()
		defer mu.Unlock()
		published++
		x.srv.Publish("all", []byte(strconv.Itoa(published)))
	}
	steady := testkit.Subscribe(x, x.client, "all")
	var reader sync.WaitGroup
	reader.Go(func() {
		last := 0
		for m, err := range steady.Messages(context.Background()) {
			if err != nil {
				return
			}
			n, err := strconv.Atoi(string(m.Payload))
			if !m.Gap && (err != nil || n <= last || m.Channel != "all") {
				x.Errorf("message %v after %d", m, last)
			}
			last = max(last, n)
		}
	})
	made := func(ctx context.Context, n int) (verdict, bool, error) {
		name := "c" + strconv.Itoa(n)
		sub, err := x.client.Subscribe(ctx, name)
		if err != nil {
			return rightAnswer, false, err
		}
		defer sub.Close()
		x.srv.Publish(name, []byte(name))
		publish()
		for {
			m, err := sub.Next(ctx)
			if err != nil || !m.Gap {
				return x.verdict(m.Channel == name && string(m.Payload) == name), false, err
			}
		}
	}
	return made, func() {
		reader.Wait()
		x.cell.twice = x.truth.repeated(codec.OpSubscribe)
	}
}

// A key of a trial of hits is hit twice in each of two rounds.
const (
	keysAtOnce = 4
	hitsPerKey = 2 * callsPerRound / keysAtOnce
	hitLimit   = 3

	hitTimeout = 150 * time.Millisecond
)

func hitKey(n int) string {
	return fmt.Sprintf("k%d.%d", n/(2*callsPerRound), n%keysAtOnce)
}

// hitting makes a hit per call. It must be over by hitTimeout, with a fallback too: that is
// asked later, but has its answer at once.
func hitting(policy func(*trial) throttr.Option) func(*trial) (call, func()) {
	return func(x *trial) (call, func()) {
		x.within = hitTimeout
		opts := []throttr.Option{throttr.WithTimeout(hitTimeout)}
		if policy != nil {
			opts = append(opts, policy(x))
		}
		h := &hitTrial{trial: x, places: places{truth: &x.truth}}
		h.limiter = throttr.NewRateLimit(x.client.Backend(), opts...)
		return h.hit, h.end
	}
}

// hitTrial makes hits.
type hitTrial struct {
	*trial
	places
	limiter *throttr.RateLimit
}

func (h *hitTrial) hit(ctx context.Context, n int) (verdict, bool, error) {
	key := hitKey(n)
	res, err := h.limiter.Hit(ctx, key, time.Minute, hitLimit)
	if err != nil {
		return rightAnswer, false, err
	}
	if res.Degraded && h.decided(key, res) {
		return byPolicy, false, nil
	}
	return h.verdict(!res.Degraded && h.right(key, res)), false, nil
}

// places knows which places in counts were given to hits.
type places struct {
	truth *truth
	mu    sync.Mutex
	given map[string]int
}

// right reports whether a hit's result can be what the server has answered: it has given
// the place, and to nobody else; or it has counted more than the limit.
func (p *places) right(key string, res throttr.Result) bool {
	if res.Allowed != (res.Count <= res.Limit) {
		return false
	}
	if !res.Allowed {
		return p.truth.gave(place{key, res.Limit + 1}) > 0
	}
	return p.give(fmt.Sprintf("%s %d", key, res.Count), p.truth.gave(place{key, res.Count}))
}

// decided reports whether the result is one for which there need not be an answer. A
// fallback, too, gives each place once; a policy knows none.
func (p *places) decided(key string, res throttr.Result) bool {
	return res.Count == 0 || res.Allowed == (res.Count <= res.Limit) && p.give(fmt.Sprintf("fallback %s %d", key, res.Count), 1)
}

// give gives a place, unless there are none left of it.
func (p *places) give(id string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = map[string]int{}
	}
	if p.given[id] >= most {
		return false
	}
	p.given[id]++
	return true
}

// end counts what was executed twice: no key's counts may grow by more than its hits.
func (h *hitTrial) end() {
	keys := map[string]bool{}
	for n := range trialRounds * callsPerRound {
		keys[hitKey(n)] = true
	}
	for key := range keys {
		h.cell.twice += max(0, h.trial.truth.counted(key)-hitsPerKey)
	}
	_, err := h.limiter.Hit(context.Background(), "k", time.Minute, hitLimit)
	require.True(h, errors.Is(err, throttr.ErrClosed) || errors.Is(err, memory.ErrClosed), "after the end: %v", err)
}
