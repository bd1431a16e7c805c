package rediswindow

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// fakeClient is a client of a Redis that grants everything, and does not respond to requests on some keys before
// thaw is called.
type fakeClient struct {
	cluster   bool
	proxy     bool // refuses requests on several keys
	stalls    func(key string) bool
	slots     func() string // what slotsScript returns
	goOn      chan struct{}
	thaw      func()                                         // closes goOn
	refuse    string                                         // the key of takes that are not granted
	answer    func(answer string) string                     // changes an answer
	script    func(digest string) (answer string, err error) // nil, or what scripts return
	subscribe func(ctx context.Context, received func(string)) error

	mu   sync.Mutex
	all  int        // requests
	sent [][]string // the keys of each request but those for what a hash has, and for slots
	text []string   // of each limit, what the script gets
}

func newFake() *fakeClient {
	goOn := make(chan struct{})
	return &fakeClient{
		stalls: func(string) bool { return true }, goOn: goOn, thaw: sync.OnceFunc(func() { close(goOn) }),
		slots:  func() string { return "0 5460 a:1\n5461 10922 b:2\n10923 16383 c:3" },
		answer: func(answer string) string { return answer },
		subscribe: func(ctx context.Context, _ func(string)) error {
			<-ctx.Done()
			return ctx.Err()
		},
	}
}

// newCluster returns a client of a fake cluster that does not grant takes of a key, and a backend on it.
func newCluster(refuse string, opts ...Option) (*fakeClient, *Backend) {
	c := newFake()
	c.cluster = true
	c.refuse = refuse
	return c, New(c, append(opts, WithPrefix(""))...)
}

func (c *fakeClient) EvalSHA(_ context.Context, digest string, keys, args []string) (string, error) {
	c.mu.Lock()
	c.all++
	c.mu.Unlock()
	switch digest {
	case slotsScript.digest:
		return c.slots(), nil
	case fieldsScript.digest:
		return "1 1 f3600000000\n5 9 b60000000:name", nil
	}
	c.mu.Lock()
	c.sent = append(c.sent, slices.Clone(keys))
	c.text = append(c.text, args[1:]...)
	c.mu.Unlock()
	if c.stalls(keys[0]) {
		<-c.goOn
	}
	if c.script != nil {
		return c.script(digest)
	}
	if c.proxy && slices.ContainsFunc(keys, func(key string) bool { return key != keys[0] }) {
		return "", errors.New("CROSSSLOT Keys in request don't hash to the same slot")
	}
	var reply []byte
	for i, key := range keys {
		text := strings.TrimLeft(args[i+1], "+0123456789")
		m, err := strconv.Atoi(strings.Trim(strings.TrimSuffix(args[i+1], text), "+"))
		if err != nil {
			m = 1
		}
		if verb(text[0]) == take && key == c.refuse {
			m = 0
		}
		for _, f := range []float64{0, float64(m), 1, 3600e6, 3600e6, 7, 0} {
			reply = appendFloat(reply, f)
		}
	}
	return c.answer(string(reply)), nil
}

func (c *fakeClient) Eval(context.Context, string, []string, []string) (string, error) {
	panic("not called")
}

func (c *fakeClient) Scan(context.Context, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {}
}

func (c *fakeClient) Cluster() (bool, error) { return c.cluster, nil }
func (c *fakeClient) Punctual() bool         { return false }
func (c *fakeClient) Name() string           { return "redis.test" }

func (c *fakeClient) Subscribe(ctx context.Context, _ string, received func(string)) error {
	return c.subscribe(ctx, received)
}

// requests returns the keys of the requests that were sent.
func (c *fakeClient) requests() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// limitOf returns a limit without a name.
func limitOf(a window.Algorithm, max uint64) window.Limit {
	return window.Limit{Max: max, Scale: time.Hour, Algorithm: a}
}

var (
	fixed  = limitOf(window.FixedWindow, 1)
	bucket = limitOf(window.TokenBucket, 1)
)
