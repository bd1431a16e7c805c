package throttr

import "github.com/throttr-go/throttr/codec"

// WithTrace has f called with the bucket whose window each hit was decided in.
func WithTrace(f func(key string, bucket int64, count, limit uint64)) BackendOption {
	return func(o *backendOptions) { o.trace = f }
}

// Remembered returns the number of windows that b remembers.
func Remembered[T codec.Value](b *ServerBackend[T]) int { return b.windows.Remembered() }

// QueueCap returns the number of pending hits that fit b's queues before they grow.
func QueueCap[T codec.Value](b *ServerBackend[T]) int { return b.windows.QueueCap() }

// Records returns the number of records that b has yet to remove.
func Records[T codec.Value](b *ServerBackend[T]) int { return b.windows.Records() }

// InlineReads returns how often callers of a client have read their responses themselves, on the
// connections that are open.
func InlineReads[T codec.Value](client *Client[T]) (n uint64) {
	for _, s := range client.servers.all {
		n += s.pool.Stats().InlineReads
	}
	return n
}
