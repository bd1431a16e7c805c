package pubsub

import "slices"

// queue holds the messages of a subscription until they are read. It is not safe for
// concurrent use.
//
//   - It holds at most limit messages. Gaps do not count.
//   - A gap is never dropped. Gaps of the same server with no message in between are one, so that they do not accumulate.
//   - Messages come out in the order in which they came in, and gaps between the same messages.
type queue struct {
	limit      int
	dropNewest bool // if the queue is full, the new message is dropped, not the oldest

	items []queued  // oldest first
	gaps  []Message // behind all items
}

// queued is a message, and the gaps before it.
type queued struct {
	gaps    []Message
	message Message
}

// push adds a message or a gap, and reports whether the queue was full, so that a message was
// dropped.
func (q *queue) push(m Message) (dropped bool) {
	if m.Gap {
		q.gaps = join(q.gaps, m)
		return false
	}
	dropped = len(q.items) == q.limit
	if dropped && q.dropNewest {
		return true
	}
	q.items = append(q.items, queued{q.gaps, m})
	q.gaps = nil
	if dropped {
		behind := &q.items[1].gaps // if the limit is 1, the new message is there
		*behind = join(q.items[0].gaps, *behind...)
		q.removeFirst()
	}
	return dropped
}

// join returns gaps and later ones: the last one of each server.
func join(gaps []Message, later ...Message) []Message {
	gaps = slices.DeleteFunc(gaps, func(g Message) bool {
		return slices.ContainsFunc(later, func(m Message) bool { return m.Server == g.Server })
	})
	return append(gaps, later...)
}

func (q *queue) removeFirst() {
	q.items[0] = queued{}
	q.items = q.items[1:]
}

// pop removes and returns the oldest message or gap. It returns false if there is none.
func (q *queue) pop() (m Message, ok bool) {
	gaps := &q.gaps
	if len(q.items) > 0 {
		gaps = &q.items[0].gaps
	}
	switch {
	case len(*gaps) > 0:
		m = (*gaps)[0]
		*gaps = (*gaps)[1:]
	case len(q.items) > 0:
		m = q.items[0].message
		q.removeFirst()
	default:
		return m, false
	}
	return m, true
}

// empty reports whether pop returns false.
func (q *queue) empty() bool { return len(q.items)+len(q.gaps) == 0 }
