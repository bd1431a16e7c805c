package pubsub

import "github.com/throttr-go/throttr/internal/fifo"

// delivery is a message in a queue.
type delivery struct {
	Message
	shared bool // other queues refer to the same payload
}

// queue holds the messages of a subscription until they are read. It is not safe for
// concurrent use.
//
//   - It holds at most limit messages. Gaps do not count.
//   - A gap is never dropped. A newer gap of the same server, with no message in between,
//     replaces it, so that gaps do not accumulate.
//   - Messages and gaps come out in the order in which they came in.
type queue struct {
	limit      int
	dropNewest bool // if the queue is full, the new message is dropped, not the oldest

	gaps     []Message            // older than everything in items; at most one per server
	items    fifo.Queue[delivery] // messages and gaps
	messages int                  // items that are not gaps
}

func (q *queue) empty() bool { return len(q.gaps) == 0 && q.items.Len() == 0 }

// push adds a message, and reports whether the queue was full, so that a message was
// dropped.
func (q *queue) push(d delivery) (dropped bool) {
	if q.messages == q.limit {
		if q.dropNewest {
			return true
		}
		q.dropOldest()
		dropped = true
	}
	q.messages++
	q.items.Push(d)
	return dropped
}

// dropOldest removes the oldest message. The gaps before and after it stay.
func (q *queue) dropOldest() {
	q.keepGaps()
	q.items.Pop()
	q.messages--
	q.keepGaps()
}

// keepGaps moves the oldest items to gaps, as long as they are gaps.
func (q *queue) keepGaps() {
	for q.items.Len() > 0 && q.items.At(0).Gap {
		q.keepGap(q.items.Pop().Message)
	}
}

// pushGap adds a gap.
func (q *queue) pushGap(gap Message) {
	for i := q.items.Len() - 1; i >= 0 && q.items.At(i).Gap; i-- {
		if q.items.At(i).Server == gap.Server {
			q.items.Set(i, delivery{Message: gap})
			return
		}
	}
	if q.items.Len() == 0 {
		q.keepGap(gap)
		return
	}
	q.items.Push(delivery{Message: gap})
}

// keepGap adds a gap that is older than the items.
func (q *queue) keepGap(gap Message) {
	for i, older := range q.gaps {
		if older.Server == gap.Server {
			q.gaps[i] = gap
			return
		}
	}
	q.gaps = append(q.gaps, gap)
}

// pop removes and returns the oldest message or gap. It returns false if there is none.
func (q *queue) pop() (d delivery, ok bool) {
	switch {
	case len(q.gaps) > 0:
		d.Message = q.gaps[0]
		q.gaps = q.gaps[1:]
	case q.items.Len() > 0:
		d = q.items.Pop()
		if !d.Gap {
			q.messages--
		}
	default:
		return d, false
	}
	return d, true
}
