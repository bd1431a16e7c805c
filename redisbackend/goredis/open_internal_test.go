package goredis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/internal/testkit"
)

// options are those of a client that are the same for one of a server and one of a cluster.
type options struct {
	user, password    string
	dial, read, write time.Duration
	ends              bool // at the deadline of a ctx
}

func TestASubscriptionReceivesWhatIsPublished(t *testing.T) {
	s := testkit.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- newAdapter(client).Subscribe(ctx, "channel", func(m string) { messages <- m }) }()
	for s.Must(t, "PUBLISH", "channel", "a message") == "0" { // it is not there yet
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case got := <-messages:
		if got != "a message" {
			t.Errorf("%q is received", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is received")
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a subscription ends without an error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a subscription does not end with its ctx")
	}
}

func TestOptionsOfAURL(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	for _, query := range []string{"", "&addr=b:1", "&master_set=primary"} {
		u, err := redisclient.Parse("goredis://zoe:pw@a:1?timeout=1500ms"+query, parameters...)
		if err != nil {
			t.Fatal(err)
		}
		client, err := clientOf(u)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var got options
		switch c := client.(type) {
		case *redis.Client:
			o := c.Options()
			got = options{o.Username, o.Password, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled}
		case *redis.ClusterClient:
			o := c.Options()
			got = options{o.Username, o.Password, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled}
			if o.ClusterStateReloadInterval != reloadInterval {
				t.Errorf("the topology is read every %v", o.ClusterStateReloadInterval)
			}
		}
		if want := (options{"zoe", "pw", timeout, timeout, timeout, true}); got != want {
			t.Errorf("%q: %+v, want %+v", query, got, want)
		}
	}
	u, err := redisclient.Parse("goredis://a:1?timeout=1500ms&dial_timeout=x", parameters...)
	if err == nil {
		_, err = clientOf(u)
	}
	if err == nil {
		t.Error("a timeout that is none is no error")
	}
}
