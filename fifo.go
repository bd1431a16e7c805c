package throttr

// fifo is a queue in a ring that grows by doubling. The zero value is empty.
type fifo[E any] struct {
	ring []E // its length is a power of two
	head int
	size int
}

func (q *fifo[E]) len() int { return q.size }

// at returns the i-th element, 0 being the oldest.
func (q *fifo[E]) at(i int) E { return q.ring[(q.head+i)&(len(q.ring)-1)] }

// set replaces the i-th element.
func (q *fifo[E]) set(i int, e E) { q.ring[(q.head+i)&(len(q.ring)-1)] = e }

func (q *fifo[E]) push(e E) {
	if q.size == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.size)&(len(q.ring)-1)] = e
	q.size++
}

// unshift puts e before the oldest element.
func (q *fifo[E]) unshift(e E) {
	if q.size == len(q.ring) {
		q.grow()
	}
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.ring[q.head] = e
	q.size++
}

func (q *fifo[E]) pop() E {
	e := q.ring[q.head]
	var zero E
	q.ring[q.head] = zero
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.size--
	return e
}

func (q *fifo[E]) grow() {
	ring := make([]E, max(16, 2*len(q.ring)))
	for i := range q.size {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}
