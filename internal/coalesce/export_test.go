package coalesce

// QueueCap returns how many hits fit the queue of c before it grows.
func QueueCap(c *Coalescer) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.Cap()
}
