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

	items    []Message // messages and gaps, oldest first
	messages int       // how many of them are messages
}

// push adds a message or a gap, and reports whether the queue was full, so that a message was
// dropped.
func (q *queue) push(m Message) (dropped bool) {
	if m.Gap {
		q.removeLastGap(m.Server)
		q.items = append(q.items, m)
		return false
	}
	dropped = q.messages == q.limit
	if dropped {
		if q.dropNewest {
			return true
		}
		q.dropOldest()
	}
	q.items = append(q.items, m)
	q.messages++
	return dropped
}

// removeLastGap removes the gap of a server behind the last message, if there is one.
func (q *queue) removeLastGap(server string) {
	for i := len(q.items) - 1; i >= 0 && q.items[i].Gap; i-- {
		if q.items[i].Server == server {
			q.items = slices.Delete(q.items, i, i+1)
			return
		}
	}
}

// dropOldest removes the oldest message, and the gaps before it that one behind it replaces. There is a message.
func (q *queue) dropOldest() {
	isMessage := func(m Message) bool { return !m.Gap }
	oldest := slices.IndexFunc(q.items, isMessage)
	behind := q.items[oldest+1:]
	if next := slices.IndexFunc(behind, isMessage); next >= 0 {
		behind = behind[:next]
	}
	before := slices.DeleteFunc(q.items[:oldest], func(m Message) bool {
		return slices.ContainsFunc(behind, func(n Message) bool { return n.Server == m.Server })
	})
	first := oldest + 1 - len(before)
	copy(q.items[first:], before)
	clear(q.items[:first])
	q.items = q.items[first:]
	q.messages--
}

// pop removes and returns the oldest message or gap. It returns false if there is none.
func (q *queue) pop() (m Message, ok bool) {
	if q.empty() {
		return m, false
	}
	m = q.items[0]
	q.items[0] = Message{}
	q.items = q.items[1:]
	if !m.Gap {
		q.messages--
	}
	return m, true
}

// empty reports whether pop returns false.
func (q *queue) empty() bool { return len(q.items) == 0 }
