package conn

// fifo is a first-in, first-out queue in a ring buffer that grows by doubling. The zero value is an empty one.
type fifo[E any] struct {
	ring []E // its length is zero or a power of two
	head int
	size int
}

// Len returns the number of elements.
func (q *fifo[E]) Len() int { return q.size }

// Cap returns how many elements fit before the queue grows.
func (q *fifo[E]) Cap() int { return len(q.ring) }

// At returns the i-th element. The oldest is element 0.
func (q *fifo[E]) At(i int) E { return q.ring[(q.head+i)&(len(q.ring)-1)] }

// Push adds e as the newest element.
func (q *fifo[E]) Push(e E) {
	if q.size == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.size)&(len(q.ring)-1)] = e
	q.size++
}

// Pop removes and returns the oldest element. It panics if the queue is empty.
func (q *fifo[E]) Pop() E {
	if q.size == 0 {
		panic("fifo: Pop of an empty queue")
	}
	e := q.ring[q.head]
	var zero E
	q.ring[q.head] = zero // the queue must not keep what e refers to alive
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.size--
	return e
}

func (q *fifo[E]) grow() {
	ring := make([]E, max(16, 2*len(q.ring)))
	for i := range q.size {
		ring[i] = q.At(i)
	}
	q.ring = ring
	q.head = 0
}
