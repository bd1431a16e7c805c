package redisbackend

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/window"
)

// A client may be closed between a look for it and the request, because another call has found that its server is a
// replica. That is no end of the backend, which no policy decides.
func TestAClientThatIsLeftIsNotClosed(t *testing.T) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{testkit.StartRedis(t).Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	for _, now := range []struct {
		client rueidis.Client
		err    error
		want   error
	}{{nil, window.ErrUnavailable, window.ErrUnavailable}, {nil, window.ErrClosed, window.ErrClosed}, {client, nil, window.ErrClosed}} {
		current := client
		a := adapter{now: func() (rueidis.Client, error) {
			defer func() { current = now.client }()
			if current == client {
				return client, nil
			}
			return nil, now.err
		}}
		if _, err := a.EvalSHA(context.Background(), "digest", nil, nil); !errors.Is(err, now.want) || errors.Is(err, window.ErrClosed) != (now.want == window.ErrClosed) {
			t.Errorf("%v, want %v", err, now.want)
		}
	}
}
