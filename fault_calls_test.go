package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
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
	{"Hits, with a fallback", hitting(func(x *trial) throttr.Option { return throttr.WithFallback(inProcess(x)) })},
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
			ok, err = c.Insert(ctx, key, 1, minute)
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
			ok, err = c.Set(ctx, key, []byte(key), minute)
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
		insert := b.Insert(key, uint16(n), minute)
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
	steady := subscribed(x, x.client, "all")
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
)

func hitKey(n int) string {
	return fmt.Sprintf("k%d.%d", n/(2*callsPerRound), n%keysAtOnce)
}

// hitting makes a hit per call.
func hitting(policy func(*trial) throttr.Option) func(*trial) (call, func()) {
	return func(x *trial) (call, func()) {
		opts := []throttr.Option{throttr.WithTimeout(callDeadlines[0] / 2)}
		if policy != nil {
			opts = append(opts, policy(x))
		}
		h := &hitTrial{trial: x, given: map[string]int{}}
		h.limiter = throttr.NewRateLimit(x.client.Backend(), opts...)
		return h.hit, h.end
	}
}

// hitTrial makes hits, and knows which places in the counts were given to them.
type hitTrial struct {
	*trial
	limiter *throttr.RateLimit

	mu    sync.Mutex
	given map[string]int // how often each place of a key was
}

func (h *hitTrial) hit(ctx context.Context, n int) (verdict, bool, error) {
	key := hitKey(n)
	res, err := h.limiter.Hit(ctx, key, time.Minute, hitLimit)
	if err != nil {
		return rightAnswer, false, err
	}
	right := res.Allowed == (res.Count <= hitLimit) || res.Degraded
	if res.Allowed && res.Count > 0 { // a policy knows no count
		right = right && h.give(key, res)
	}
	if !res.Allowed && !res.Degraded {
		right = right && h.places(key, func(place uint64) bool { return place > hitLimit }) > 0
	}
	if res.Degraded && right {
		return byPolicy, false, nil
	}
	return h.verdict(right), false, nil
}

// give reports whether a hit may have its place: the backend gave it, to nobody else.
func (h *hitTrial) give(key string, res throttr.Result) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := fmt.Sprint(key, res.Count, res.Degraded)
	h.given[id]++
	if res.Degraded {
		return h.given[id] == 1
	}
	return h.given[id] <= h.places(key, func(place uint64) bool { return place == res.Count })
}

// places returns how many places of a key's count that the server has given are wanted.
func (h *hitTrial) places(key string, wanted func(place uint64) bool) (n int) {
	for _, e := range h.increases(key) {
		for i := range e.n {
			if wanted(e.count - i) {
				n++
			}
		}
	}
	return n
}

// increase is an INCREASE that has succeeded.
type increase struct{ n, count uint64 }

// increases returns those of all records of a key.
func (h *hitTrial) increases(key string) (all []increase) {
	h.truth.mu.Lock()
	defer h.truth.mu.Unlock()
	for id, execs := range h.truth.execs {
		if !strings.HasPrefix(id, "UPDATE ") || !strings.HasSuffix(id, ":"+key) {
			continue
		}
		for _, e := range execs {
			if u, ok := e.Request.(codec.Update[uint16]); ok && e.Status {
				all = append(all, increase{uint64(u.Value), e.Quota})
			}
		}
	}
	return all
}

// end counts what was executed twice: no key's counts may grow by more than its hits.
func (h *hitTrial) end() {
	seen := map[string]bool{}
	for n := range trialRounds * callsPerRound {
		key, sum := hitKey(n), 0
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, e := range h.increases(key) {
			sum += int(e.n)
		}
		h.cell.twice += max(0, sum-hitsPerKey)
	}
	_, err := h.limiter.Hit(context.Background(), "k", time.Minute, hitLimit)
	require.True(h, errors.Is(err, throttr.ErrClosed) || errors.Is(err, memory.ErrClosed), "after the end: %v", err)
}
