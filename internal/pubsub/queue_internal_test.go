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
	if dropped = messages == q.limit; dropped {
		if q.dropNewest {
			return true
		}
		oldest := slices.IndexFunc(q.items, func(e Message) bool { return !e.Gap })
		q.items = slices.Delete(q.items, oldest, oldest+1)
		// The gaps before and after it are neighbors now.
		for i := 0; i < len(q.items) && q.items[i].Gap; {
			if !q.merge(i) {
				i++
			}
		}
	}
	q.items = append(q.items, m)
	return dropped
}

func (q *modelQueue) pushGap(gap Message) {
	q.items = append(q.items, gap)
	q.merge(len(q.items) - 1)
}

// merge moves item i to where an older gap is of the same server, if no message comes
// between them. It reports whether there was one.
func (q *modelQueue) merge(i int) bool {
	for j := i - 1; j >= 0 && q.items[j].Gap; j-- {
		if q.items[j].Server == q.items[i].Server {
			q.items[j] = q.items[i]
			q.items = slices.Delete(q.items, i, i+1)
			return true
		}
	}
	return false
}

func TestQueueEqualsModel(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit, dropNewest := 1+rnd.IntN(4), rnd.IntN(2) == 0
		q := queue{limit: limit, dropNewest: dropNewest}
		model := modelQueue{limit: limit, dropNewest: dropNewest}
		var got, want []Message
		pop := func() {
			d, ok := q.pop()
			require.Equal(t, len(model.items) > 0, ok)
			if ok {
				got, want = append(got, d.Message), append(want, model.items[0])
				model.items = model.items[1:]
			}
		}
		for i := range 100 {
			server := fmt.Sprint(rnd.IntN(3))
			switch rnd.IntN(5) {
			case 0, 1:
				m := Message{Server: server, Payload: []byte(fmt.Sprint(i))}
				require.Equal(t, model.push(m), q.push(delivery{Message: m}))
			case 2, 3:
				gap := Message{Server: server, Channel: fmt.Sprint(i), Gap: true}
				q.pushGap(gap)
				model.pushGap(gap)
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

func TestGapsDoNotAccumulate(t *testing.T) {
	q := queue{limit: 2}
	for i := range 100 {
		for _, server := range []string{"a", "b"} {
			q.pushGap(Message{Server: server, Gap: true})
			if i%10 == 0 {
				q.push(delivery{Message: Message{Server: server}})
			}
		}
		require.LessOrEqual(t, len(q.gaps)+q.items.Len(), 2+3*2)
	}
}
