package throttr_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

func ExampleConnect_wrongValueSize() {
	srv, err := mockserver.Start(mockserver.WithValueSize(4))
	if err != nil {
		panic(err)
	}
	defer srv.Close()

	_, err = throttr.Connect[uint16](context.Background(), throttr.Config{Servers: []string{srv.Addr()}})
	fmt.Println(errors.Is(err, throttr.ErrValueSizeMismatch))
	var size *throttr.ValueSizeError
	if errors.As(err, &size) {
		fmt.Printf("ours: %d bytes, the server's: %d bytes\n", size.Client, size.Actual)
	}
	// Output:
	// true
	// ours: 2 bytes, the server's: 4 bytes
}

func ExampleParseURL() {
	cfg, err := throttr.ParseURL("throttr://h1:9000,h2?max_conns=2&stall_timeout=500ms")
	if err != nil {
		panic(err)
	}
	fmt.Println(cfg.Servers, cfg.MaxConns, cfg.StallTimeout)

	_, err = throttr.ParseURL("throttr://h1?max_cons=2")
	fmt.Println(err)
	// Output:
	// [h1:9000 h2:9000] 2 500ms
	// throttr: invalid configuration: URL parameter "max_cons" is unknown
}

func ExampleClient() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()

	fmt.Println(client.Insert(ctx, "k", 5, seconds(60)))
	fmt.Println(client.Insert(ctx, "k", 7, seconds(60))) // the key exists: false, and nothing changes
	fmt.Println(client.Update(ctx, "k", codec.Quota, codec.Increase, 3))
	fmt.Println(client.Update(ctx, "k", codec.Quota, codec.Decrease, 9)) // would go below zero: false
	fmt.Println(client.Update(ctx, "k", codec.TimeToLive, codec.Patch, 90))
	srv.Advance(20500 * time.Millisecond)
	c, found, err := client.Query(ctx, "k")
	fmt.Println(c.Quota, c.TTL, found, err) // what is left is floored to the unit
	fmt.Println(client.Purge(ctx, "k"))
	fmt.Println(client.Purge(ctx, "k")) // nothing there any more: false
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
	// false <nil>
	// true <nil>
	// 8 69s true <nil>
	// true <nil>
	// false <nil>
}

func ExampleClient_Set() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	fmt.Println(client.Set(ctx, "greeting", []byte("hello"), seconds(60)))
	fmt.Println(client.Set(ctx, "greeting", []byte("good morning"), seconds(60))) // overwrites
	b, found, err := client.Get(ctx, "greeting")
	fmt.Printf("%s %v %v\n", b.Value, found, err)
	client.Insert(ctx, "counter", 1, seconds(60))
	fmt.Println(client.Set(ctx, "counter", []byte("hello"), seconds(60))) // is a counter: false
	// Output:
	// true <nil>
	// true <nil>
	// good morning true <nil>
	// false <nil>
}

func ExampleBatch() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	var b throttr.Batch[uint16] // the zero value is empty
	b.Insert("k", 5, seconds(60))
	increase := b.Update("k", codec.Quota, codec.Increase, 3)
	query := b.Query("k")
	set := b.Set("greeting", []byte("hello"), seconds(60))
	get := b.Get("greeting")
	_, err := set.OK()
	fmt.Println(err)                           // no answer yet
	if err := client.Do(ctx, &b); err != nil { // one write, one round trip
		panic(err)
	}
	fmt.Println(increase.OK())
	c, found, err := query.Counter()
	fmt.Println(c.Quota, found, err)
	greeting, found, err := get.Buffer()
	fmt.Printf("%s %v %v\n", greeting.Value, found, err)
	b.Reset() // for the next requests
	fmt.Println(b.Len())
	// Output:
	// throttr: batch used out of order: no response yet: the batch has not been sent
	// true <nil>
	// 8 true <nil>
	// hello true <nil>
	// 0
}

func ExampleClient_Stats() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(60))
	client.Query(ctx, "k")
	for _, s := range client.Stats().Servers {
		fmt.Println("connections:", s.Conns, "failures:", s.Failures, "locked up:", s.LockedUp)
	}
	// Output: connections: 1 failures: 0 locked up: false
}

func ExampleRequestError() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	srv.Inject(mockserver.Fault{Op: codec.OpInsert, Disconnect: true}) // executes, and hangs up

	_, err := client.Insert(ctx, "k", 5, seconds(60))
	var failed *throttr.RequestError
	if errors.As(err, &failed) {
		fmt.Println(failed.Op, "safe to retry:", failed.SafeToRetry())
	}
	fmt.Println(errors.Is(err, throttr.ErrConnLost))
	// Output:
	// INSERT safe to retry: false
	// true
}

func ExampleClient_Info() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(60))
	client.Set(ctx, "b", []byte("bytes"), seconds(60))
	info, err := client.Info(ctx)
	if err != nil {
		panic(err)
	}
	for _, s := range info {
		fmt.Println("version", s.Version, "up", s.Time.Sub(s.RunningSince), "connections", s.Connections)
		fmt.Println("counters", s.Counters, "buffers", s.Buffers, "sets", s.Requests.Set.Total)
	}
	// Output:
	// version 5.0.11 up 0s connections 1
	// counters 1 buffers 1 sets 1
}

func ExampleClient_List() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "counter", 5, seconds(60))
	client.Set(ctx, "greeting", []byte("hello"), seconds(90))
	for e, err := range client.List(ctx) {
		if err != nil { // at most once, and last
			fmt.Println(err)
			break
		}
		fmt.Println(e.Key, e.Kind, e.ExpiresAt.Format(time.TimeOnly), e.BytesUsed)
	}
	// Unordered output:
	// counter counter 00:01:00 2
	// greeting buffer 00:01:30 5
}

func ExampleClient_KeyStats() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(3600))
	for range 3 {
		client.Update(ctx, "k", codec.Quota, codec.Increase, 1)
	}
	srv.Advance(time.Minute) // a server works the figures out once a minute
	for e, err := range client.KeyStats(ctx) {
		fmt.Println(e.Key, e.Writes, e.WritesPerMinute, err)
	}
	stat, found, err := client.Stat(ctx, "k") // of one key
	fmt.Println(stat.Writes, found, err)
	// Output:
	// k 4 4 <nil>
	// 4 true <nil>
}

func ExampleClient_Connections() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Publish(ctx, "*", nil)
	for c, err := range client.Connections(ctx) {
		fmt.Println(c.Type, c.Kind, c.Addr.Addr(), c.Requests.Publish, c.Requests.Connections, err)
	}
	who, err := client.WhoAmI(ctx)
	if err != nil {
		panic(err)
	}
	c, found, err := client.Connection(ctx, who[0].Server, who[0].ID)
	fmt.Println(c.Kind, c.Requests.WhoAmI > 0, found, err)
	_, _, err = client.Connection(ctx, "elsewhere:9000", who[0].ID)
	fmt.Println(err)
	// Output:
	// client tcp 127.0.0.1 1 0 <nil>
	// client tcp 127.0.0.1 0 1 <nil>
	// tcp true true <nil>
	// throttr: invalid configuration: "elsewhere:9000" is none of Servers
}

func ExampleClient_Channels() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	fmt.Println(client.Publish(ctx, "news", []byte("hello"))) // nobody is subscribed: false
	news, err := client.Subscribe(ctx, "news")
	if err != nil {
		panic(err)
	}
	defer news.Close()
	fmt.Println(client.Publish(ctx, "news", []byte("hello"))) // one is
	for c, err := range client.Channels(ctx) {
		if err != nil {
			panic(err)
		}
		if c.Name == "news" { // each connection for subscriptions has two channels more
			fmt.Println(c.Name, c.Connections, c.ReadBytes)
		}
	}
	subscribers, found, err := client.Channel(ctx, "news")
	fmt.Println(len(subscribers), found, err)
	// Output:
	// false <nil>
	// true <nil>
	// news 1 5
	// 1 true <nil>
}

func ExampleClient_Subscribe() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	sub, err := client.Subscribe(ctx, "prices", pubsub.WithQueue(1000))
	if err != nil {
		panic(err)
	}
	defer sub.Close()
	for _, price := range []string{"17", "18"} {
		if _, err := client.Publish(ctx, "prices", []byte(price)); err != nil {
			panic(err)
		}
	}
	for range 2 {
		m, err := sub.Next(ctx)
		switch {
		case err != nil:
			panic(err)
		case m.Gap:
			fmt.Println("the connection was lost: ask for the present price")
		default:
			fmt.Printf("%s: %s\n", m.Channel, m.Payload)
		}
	}
	// Output:
	// prices: 17
	// prices: 18
}

// A channel with a random name is for those who are told it.
func ExampleSubscription_Messages() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()
	name := rand.Text()
	sub, err := client.Subscribe(ctx, name)
	if err != nil {
		panic(err)
	}
	if _, err := client.Publish(ctx, name, []byte("hello")); err != nil {
		panic(err)
	}
	for m, err := range sub.Messages(ctx) {
		if err != nil { // ErrClosed
			break
		}
		fmt.Printf("%s\n", m.Payload)
		sub.Close()
	}
	// Output: hello
}

func ExampleSubscription_Next() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	sub, err := client.Subscribe(ctx, "prices")
	if err != nil {
		panic(err)
	}

	srv.Publish("prices", []byte("17"))
	m, err := sub.Next(ctx)
	fmt.Printf("%q, gap %v, %v\n", m.Payload, m.Gap, err)

	srv.Disconnect()
	m, err = sub.Next(ctx) // comes when it is subscribed again
	fmt.Printf("%q, gap %v, %v\n", m.Payload, m.Gap, err)

	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = sub.Next(soon)
	fmt.Println(err)

	sub.Close()
	_, err = sub.Next(ctx)
	fmt.Println(errors.Is(err, throttr.ErrClosed))
	// Output:
	// "17", gap false, <nil>
	// "", gap true, <nil>
	// context deadline exceeded
	// true
}

// publish publishes messages, and returns when the client has got them.
func publish(ctx context.Context, client *throttr.Client[uint16], channel string, payloads ...string) {
	last, err := client.Subscribe(ctx, "last")
	if err != nil {
		panic(err)
	}
	defer last.Close()
	for _, p := range payloads {
		if _, err := client.Publish(ctx, channel, []byte(p)); err != nil {
			panic(err)
		}
	}
	if _, err := client.Publish(ctx, "last", nil); err != nil {
		panic(err)
	}
	if _, err := last.Next(ctx); err != nil {
		panic(err)
	}
}

// A queue of one has the latest message, for those who take one now and then.
func ExampleWithQueue() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()
	latest, err := client.Subscribe(ctx, "prices", pubsub.WithQueue(1))
	if err != nil {
		panic(err)
	}
	first, err := client.Subscribe(ctx, "prices", pubsub.WithQueue(2), pubsub.WithOverflow(pubsub.DropNewest))
	if err != nil {
		panic(err)
	}

	publish(ctx, client, "prices", "17", "18", "19")
	m, err := latest.Next(ctx)
	fmt.Println(string(m.Payload), latest.Dropped(), err)
	m, err = first.Next(ctx)
	fmt.Println(string(m.Payload), first.Dropped(), err)
	// Output:
	// 19 2 <nil>
	// 17 1 <nil>
}
