package pubsub

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// modelQueue is a slice of messages that obeys the rules of a queue in the simplest way.
type modelQueue struct {
	limit      int
	dropNewest bool
	items      []Message
}

func (q *modelQueue) push(m Message) (dropped bool) {
	messages := 0
	for _, e := range q.items {
		if !e.Gap {
			messages++
		}
	}
	if dropped = !m.Gap && messages == q.limit; dropped {
		if q.dropNewest {
			return true
		}
		oldest := slices.IndexFunc(q.items, func(e Message) bool { return !e.Gap })
		q.items = slices.Delete(q.items, oldest, oldest+1)
	}
	q.items = append(q.items, m)
	q.merge()
	return dropped
}

// merge removes the gaps that are followed by another one of the same server without a message between them.
func (q *modelQueue) merge() {
	for i, e := range slices.Backward(q.items) {
		gaps := q.items[i+1:]
		if end := slices.IndexFunc(gaps, func(o Message) bool { return !o.Gap }); end >= 0 {
			gaps = gaps[:end]
		}
		if e.Gap && slices.ContainsFunc(gaps, func(o Message) bool { return o.Server == e.Server }) {
			q.items = slices.Delete(q.items, i, i+1)
		}
	}
}

func TestQueueEqualsModel(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit, dropNewest := 1+rnd.IntN(4), rnd.IntN(2) == 0
		q := queue{limit: limit, dropNewest: dropNewest}
		model := modelQueue{limit: limit, dropNewest: dropNewest}
		var got, want []Message
		pop := func() {
			m, ok := q.pop()
			require.Equal(t, len(model.items) > 0, ok)
			if ok {
				got, want = append(got, m), append(want, model.items[0])
				model.items = model.items[1:]
			}
		}
		for i := range 100 {
			server := fmt.Sprint(rnd.IntN(3))
			switch rnd.IntN(5) {
			case 0, 1:
				m := Message{Server: server, Payload: []byte(fmt.Sprint(i))}
				require.Equal(t, model.push(m), q.push(m))
			case 2, 3:
				gap := Message{Server: server, Channel: fmt.Sprint(i), Gap: true}
				q.push(gap)
				model.push(gap)
			default:
				pop()
			}
			require.Equal(t, len(model.items) == 0, q.empty())
		}
		for !q.empty() {
			pop()
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}
