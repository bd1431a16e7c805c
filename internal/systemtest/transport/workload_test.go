package transport_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// execution names requests by what they do.
type execution struct {
	op  codec.Op
	key string
}

// journal counts how often a server executed requests.
type journal struct {
	mu   sync.Mutex // guards seen
	seen map[execution]int
}

// observe is for mockserver.WithObserver.
func (j *journal) observe(e mockserver.Exec) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = make(map[execution]int)
	}
	j.seen[execution{e.Op, e.Key}]++
}

// count returns how often the server executed op on key.
func (j *journal) count(op codec.Op, key string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen[execution{op, key}]
}

// result is the outcome of a request.
type result struct {
	op    codec.Op
	key   string
	right bool // the response, if there is one, is the only one that can be right
	err   error
}

// request makes the i-th request. Its kind depends on i, and no other request has its key. The
// responses differ, so that a response that reaches the wrong caller is noticed. It needs the
// records that fill stores.
func request(ctx context.Context, client *throttr.Client[uint16], i int) result {
	key := fmt.Sprint("key:", i)
	switch i % 4 {
	case 0:
		c, ok, err := client.Query(ctx, key)
		return result{codec.OpQuery, key, ok && c.Quota == uint16(i), err}
	case 1:
		b, ok, err := client.Get(ctx, "b"+key)
		return result{codec.OpGet, "b" + key, ok && string(b.Value) == key, err}
	case 2:
		ok, err := client.Insert(ctx, key, uint16(i), testkit.Minute)
		return result{codec.OpInsert, key, ok == (i%8 == 6), err} // the other keys exist
	default:
		ok, err := client.Update(ctx, key, codec.Quota, codec.Decrease, uint16(i))
		return result{codec.OpUpdate, key, ok == (i%8 == 3), err} // the other quotas are smaller
	}
}

// fill stores the records that the first n requests need.
func fill(t *testing.T, srv *mockserver.Server, client *throttr.Client[uint16], n int) {
	t.Helper()
	for i := range n {
		key := fmt.Sprint("key:", i)
		switch {
		case i%4 == 1:
			ok, err := client.Set(t.Context(), "b"+key, []byte(key), testkit.Minute)
			require.NoError(t, err)
			require.True(t, ok)
		case i%8 == 7:
			srv.Set(key, uint64(i-1), time.Minute)
		case i%8 != 6:
			srv.Set(key, uint64(i), time.Minute)
		}
	}
}
