package redisbackend

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/window"
)

// left is a client that was closed because the backend has left it, before its request was made.
type left struct {
	rueidis.Client
	leave func()
}

// Do implements [rueidis.Client].
func (l *left) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	l.leave()
	return l.Client.Do(ctx, command)
}

// Another call may find that the server of a client is a replica. That is no end of the backend, which no policy
// decides.
func TestAClientThatIsLeftIsNotClosed(t *testing.T) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{testkit.StartRedis(t).Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	for _, test := range []struct {
		leave func(a *adapter)
		want  error
	}{
		{func(a *adapter) { a.client, a.err = nil, window.ErrUnavailable }, window.ErrUnavailable},
		{func(a *adapter) { a.client, a.err = nil, window.ErrClosed }, window.ErrClosed},
		{func(a *adapter) {}, window.ErrClosed},
	} {
		a := &adapter{}
		a.client = &left{client, func() { test.leave(a) }}
		if _, err := a.EvalSHA(context.Background(), "digest", nil, nil); !errors.Is(err, test.want) || errors.Is(err, window.ErrClosed) != (test.want == window.ErrClosed) {
			t.Errorf("%v, want %v", err, test.want)
		}
	}
}
