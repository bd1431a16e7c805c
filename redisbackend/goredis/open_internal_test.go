package goredis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr/internal/redisclient"
)

func clientOfURL(text string) (redis.UniversalClient, error) {
	u, err := redisclient.Parse(text, parameters...)
	if err != nil {
		return nil, err
	}
	return clientOf(u)
}

func TestTimeoutsOfAURL(t *testing.T) {
	for _, url := range []string{"goredis://a:1?timeout=1500ms", "goredis://a:1?timeout=1500ms&addr=b:1"} {
		client, err := clientOfURL(url)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var all []time.Duration
		switch c := client.(type) {
		case *redis.Client:
			all = []time.Duration{c.Options().DialTimeout, c.Options().ReadTimeout, c.Options().WriteTimeout}
		case *redis.ClusterClient:
			all = []time.Duration{c.Options().DialTimeout, c.Options().ReadTimeout, c.Options().WriteTimeout}
			if c.Options().ClusterStateReloadInterval != reloadInterval {
				t.Errorf("the topology is read every %v", c.Options().ClusterStateReloadInterval)
			}
		}
		for _, d := range all {
			if d != 1500*time.Millisecond {
				t.Errorf("%s: timeouts %v", url, all)
			}
		}
	}
	if _, err := clientOfURL("goredis://a:1?timeout=1500ms&dial_timeout=x"); err == nil {
		t.Error("a timeout that is none is no error")
	}
}
