package throttr

import (
	"context"
	"time"
)

// Delete implements [Backend]. Without scales, it ends the key's windows of those scales
// that this client has lately counted with: a server does not tell which others there are.
func (b *ServerBackend[T]) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	if len(scales) == 0 {
		scales = b.lanes.scales(key)
	}
	n := 0
	for _, scale := range scales {
		w, err := b.visit(ctx, key, scale, visit{task: resetTask})
		if err != nil {
			return n, err
		}
		if !w.ExpiresAt.IsZero() {
			n++
		}
	}
	return n, nil
}

// scales returns the scales of the lanes of a key.
func (t *laneTable[T]) scales(key string) []time.Duration {
	s := t.shard(laneKey{key: key})
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []time.Duration
	for k := range s.lanes {
		if k.key == key {
			out = append(out, k.scale)
		}
	}
	return out
}
