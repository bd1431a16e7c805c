package redisbackend_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
)

// arrival is a context whose Done is called once its caller has joined the line.
type arrival struct {
	context.Context
	once   sync.Once
	joined chan struct{}
}

// Done implements context.Context.
func (a *arrival) Done() <-chan struct{} {
	a.once.Do(func() { close(a.joined) })
	return a.Context.Done()
}

// Callers wait for windows whose ends are those of the server's clock. Some of them give up.
func TestCallersThatWaitAreServedInOrder(t *testing.T) {
	const callers, limit, scale = 400, 50, 400 * time.Millisecond
	limiter := throttr.NewRateLimit(redisbackend.New(startServer(t).connect()))
	type place struct {
		caller int
		throttr.Result
	}
	var mu sync.Mutex // guards places
	var places []place
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	wait := func(ctx context.Context, i int) {
		res, err := limiter.Wait(ctx, "k", throttr.Limit{Max: limit, Scale: scale}, 1)
		switch {
		case err == nil:
			mu.Lock()
			places = append(places, place{i, res})
			mu.Unlock()
		case ctx.Err() == nil:
			t.Errorf("caller %d: %v", i, err)
		}
	}
	for i := range callers {
		of := t.Context()
		if i > limit && i%10 == 0 {
			of = ctx // gives up
		}
		a := &arrival{Context: of, joined: make(chan struct{})}
		all.Go(func() {
			wait(a, i)
			a.Done()
		})
		<-a.joined
	}
	cancel()
	all.Wait()
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(a.ResetAt.Compare(b.ResetAt), cmp.Compare(a.Count, b.Count))
	})
	windows := 0
	for i := range places {
		if i == 0 || places[i].Count <= places[i-1].Count {
			windows++
		}
		if places[i].Count > limit || i > 0 && places[i].caller < places[i-1].caller {
			t.Errorf("caller %d is served before caller %d, with a count of %d", places[i-1].caller, places[i].caller, places[i].Count)
		}
	}
	best := (len(places) + limit - 1) / limit
	t.Logf("%d callers are served in %d windows, %d would do", len(places), windows, best)
	expect(t, len(places) >= callers*9/10 && windows <= best+1, "%d callers are served in %d windows, %d would do", len(places), windows, best)
}
