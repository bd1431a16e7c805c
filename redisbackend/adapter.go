package redisbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// New returns a backend that keeps its windows on the server or cluster of client. The caller
// still owns the client, may use it for other things, and closes it. New panics if client or an
// option is nil.
func New(client rueidis.Client, opts ...rediswindow.Option) *rediswindow.Backend {
	if client == nil {
		panic("redisbackend: New: client is nil")
	}
	a := &adapter{name: nameOf(client), shared: true}
	a.state.Store(&state{client: client})
	return rediswindow.New(a, opts...)
}

// nameOf returns the address of a server of a client.
func nameOf(client rueidis.Client) string {
	if addrs := slices.Sorted(maps.Keys(client.Nodes())); len(addrs) > 0 {
		return addrs[0]
	}
	return "redis"
}

// adapter is a [rediswindow.Client]. Its commands are neither declared read-only nor retryable: the
// primary must execute them, once.
type adapter struct {
	name   string
	shared bool                 // with calls of the user's, which a connection that is closed at a deadline would fail
	option rueidis.ClientOption // of clients that it makes, until ctx ends: one that is shared makes none
	ctx    context.Context
	state  atomic.Pointer[state]
}

// state is the client, or why there is none at present.
type state struct {
	client rueidis.Client
	err    error
}

// current returns the client, or why there is none at present.
func (a *adapter) current() (rueidis.Client, error) {
	s := a.state.Load()
	return s.client, s.err
}

// connect makes attempts, after pauses, until one succeeds, or Close.
func (a *adapter) connect() {
	pause := outage.NewBackoff(50*time.Millisecond, 400*time.Millisecond)
	for pause.Wait(a.ctx, nil) == nil && a.attempt() != nil {
	}
}

// attempt makes an attempt to connect, which is in vain after Close.
func (a *adapter) attempt() error {
	before := a.state.Load()
	client, err := rueidis.NewClient(a.option)
	after := &state{client: client}
	if err != nil {
		after = &state{err: a.connectError(err)}
	}
	if (a.ctx.Err() != nil || !a.state.CompareAndSwap(before, after)) && err == nil {
		go client.Close()
	}
	return after.err
}

// left has another client made, unless it is shared, as the server of this one has become a replica: an address that
// leads to another primary by then is used soon, although connections to the old one are still there.
func (a *adapter) left(client rueidis.Client, why error) {
	s := a.state.Load()
	if !a.shared && s.client == client && a.state.CompareAndSwap(s, &state{err: a.connectError(why)}) {
		go client.Close()
		go a.connect()
	}
}

// connectError returns the error of an attempt, without what is secret: a server that does not know AUTH may repeat it.
func (a *adapter) connectError(err error) error {
	err = redisclient.ReplyError(clientError(err), a.option.Password, a.option.Username)
	if !errors.Is(err, window.ErrUnavailable) { // no reply to an attempt is about a key
		err = fmt.Errorf("%w: %w", window.ErrUnavailable, err)
	}
	return &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
}

// Punctual implements [rediswindow.Client]. A connection that is shared is not given up at a deadline, and who waits
// until one is there waits longer.
func (a *adapter) Punctual() bool { return !a.shared }

// EvalSHA implements [rediswindow.Client].
func (a *adapter) EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error) {
	return a.eval(ctx, "EVALSHA", digest, keys, args)
}

// Eval implements [rediswindow.Client].
func (a *adapter) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	return a.eval(ctx, "EVAL", script, keys, args)
}

func (a *adapter) eval(ctx context.Context, command, script string, keys, args []string) (string, error) {
	client, err := a.current()
	if err != nil {
		return "", err
	}
	c := client.B().Arbitrary(command, script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
	reply, err := client.Do(ctx, c).ToString()
	if redisclient.About(err) == redisclient.Role {
		a.left(client, err)
	}
	if errors.Is(err, rueidis.ErrClosing) {
		if current, why := a.current(); current != client { // it was left before it was asked, or the backend is closed
			return "", cmp.Or(why, window.ErrUnavailable)
		}
	}
	return reply, clientError(err)
}

// noDeadline is a context that ends, and does not tell when: otherwise, an idle client runs a command under the
// deadline of its connection, and closes the connection then, for all who use it.
type noDeadline struct{ context.Context }

// Deadline implements [context.Context].
func (noDeadline) Deadline() (at time.Time, ok bool) { return at, false }

// Scan implements [rediswindow.Client].
func (a *adapter) Scan(ctx context.Context, match string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		client, err := a.current()
		if err != nil {
			yield("", err)
			return
		}
		if a.shared {
			ctx = noDeadline{ctx}
		}
		for _, node := range client.Nodes() {
			primary, err := isPrimary(ctx, node)
			for cursor, more := uint64(0), primary; more && err == nil; more = cursor != 0 {
				var entry rueidis.ScanEntry
				entry, err = node.Do(ctx,
					node.B().Scan().Cursor(cursor).Match(match).Count(scanCount).Build()).AsScanEntry()
				cursor = entry.Cursor
				for _, name := range entry.Elements {
					if !yield(name, nil) {
						return
					}
				}
			}
			if err != nil {
				yield("", clientError(err))
				return
			}
		}
	}
}

// scanCount is how many keys a server looks at for an answer to SCAN.
const scanCount = 256

// isPrimary asks a node whether it is a primary.
func isPrimary(ctx context.Context, node rueidis.Client) (bool, error) {
	role, err := node.Do(ctx, node.B().Role().Build()).ToArray()
	if err != nil || len(role) == 0 {
		return false, err
	}
	name, err := role[0].ToString()
	return name == "master", err
}

// Subscribe implements [rediswindow.Subscriber]. The client subscribes again if its connection has ended.
func (a *adapter) Subscribe(ctx context.Context, channel string, received func(message string)) error {
	client, err := a.current()
	if err != nil {
		return err
	}
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			go received("") // all calls of the connection wait for the hook
		}
	})
	return client.Receive(ctx, client.B().Subscribe().Channel(channel).Build(),
		func(m rueidis.PubSubMessage) { received(m.Message) })
}

// Cluster implements [rediswindow.Client].
func (a *adapter) Cluster() (bool, error) {
	client, err := a.current()
	return err == nil && client.Mode() == rueidis.ClientModeCluster, err
}

// Name implements [rediswindow.Client].
func (a *adapter) Name() string { return a.name }

// clientError returns an error of the client as a [rediswindow.Client] does.
func clientError(err error) error {
	_, reply := rueidis.IsRedisErr(err)
	return redisclient.ClientError(err, rueidis.ErrClosing, reply)
}
