package pubsub

import "slices"

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

	items []item    // oldest first
	gaps  []Message // behind the last item
}

// item is a message, and the gaps before it: one of a server at most.
type item struct {
	gaps    []Message
	message Message
}

// push adds a message or a gap, and reports whether the queue was full, so that a message was
// dropped.
func (q *queue) push(m Message) (dropped bool) {
	if m.Gap {
		q.gaps = mergeGaps(q.gaps, []Message{m})
		return false
	}
	if len(q.items) == q.limit {
		if q.dropNewest {
			return true
		}
		oldest := q.popItem()
		next := q.nextGaps()
		*next = mergeGaps(oldest.gaps, *next)
		dropped = true
	}
	q.items = append(q.items, item{q.gaps, m})
	q.gaps = nil
	return dropped
}

// pop removes and returns the oldest message or gap. It returns false if there is none.
func (q *queue) pop() (m Message, ok bool) {
	if next := q.nextGaps(); len(*next) > 0 {
		m = (*next)[0]
		*next = (*next)[1:]
		return m, true
	}
	if len(q.items) == 0 {
		return m, false
	}
	return q.popItem().message, true
}

// empty reports whether pop returns false.
func (q *queue) empty() bool { return len(q.items) == 0 && len(q.gaps) == 0 }

// popItem removes the oldest item.
func (q *queue) popItem() item {
	oldest := q.items[0]
	q.items[0] = item{}
	q.items = q.items[1:]
	return oldest
}

// nextGaps returns the gaps before the oldest message.
func (q *queue) nextGaps() *[]Message {
	if len(q.items) == 0 {
		return &q.gaps
	}
	return &q.items[0].gaps
}

// mergeGaps returns gaps without those that a newer one of their server replaces.
func mergeGaps(older, newer []Message) []Message {
	older = slices.DeleteFunc(older, func(m Message) bool {
		return slices.ContainsFunc(newer, func(n Message) bool { return n.Server == m.Server })
	})
	return append(older, newer...)
}
