package coalesce

import "context"

// QueueCap returns how many hits fit the queue of c before it grows.
func QueueCap(c *Coalescer) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.Cap()
}

// QueueLen returns how many calls of a partition are in its queue, also canceled ones.
func QueueLen[C any](c *Combiner[C], partition int) int {
	q := c.partition(partition)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.Len()
}

// WaitAnswered waits for a call that has been answered.
func WaitAnswered[C any](ctx context.Context, c *Combiner[C]) (sent bool, err error) {
	p := c.Get()
	p.begun = true
	p.done <- struct{}{}
	return c.partition(0).wait(ctx, p)
}
