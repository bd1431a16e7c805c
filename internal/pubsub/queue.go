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
	messages int       // items that are not gaps
}

// push adds a message or a gap, and reports whether the queue was full, so that a message was
// dropped.
func (q *queue) push(m Message) (dropped bool) {
	if m.Gap {
		q.pushGap(m)
		return false
	}
	if q.messages == q.limit {
		if q.dropNewest {
			return true
		}
		q.dropOldest()
		dropped = true
	}
	q.messages++
	q.items = append(q.items, m)
	return dropped
}

// dropOldest removes the oldest message. The gaps before it stay, unless newer ones behind it replace them.
func (q *queue) dropOldest() {
	i := slices.IndexFunc(q.items, func(m Message) bool { return !m.Gap })
	first := i + 1
	for _, gap := range slices.Backward(q.items[:i]) {
		if !beginsWithGap(q.items[first:], gap.Server) {
			first--
			q.items[first] = gap
		}
	}
	clear(q.items[:first])
	q.items = q.items[first:]
	q.messages--
}

// beginsWithGap reports whether there is a gap of a server before the first message.
func beginsWithGap(items []Message, server string) bool {
	i := slices.IndexFunc(items, func(m Message) bool { return !m.Gap || m.Server == server })
	return i >= 0 && items[i].Gap
}

// pushGap adds a gap.
func (q *queue) pushGap(gap Message) {
	for i := len(q.items) - 1; i >= 0 && q.items[i].Gap; i-- {
		if q.items[i].Server == gap.Server {
			q.items = slices.Delete(q.items, i, i+1)
			break
		}
	}
	q.items = append(q.items, gap)
}

// pop removes and returns the oldest message or gap. It returns false if there is none.
func (q *queue) pop() (m Message, ok bool) {
	if len(q.items) == 0 {
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
