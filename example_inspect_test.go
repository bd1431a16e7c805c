package throttr_test

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

func ExampleClient_Stat() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()

	client.Insert(ctx, "k", 5, seconds(3600))
	client.Query(ctx, "k")
	srv.Advance(time.Minute) // a server works the figures out once a minute
	stat, found, err := client.Stat(ctx, "k")
	fmt.Printf("%+v %v %v\n", stat, found, err)
	_, found, err = client.Stat(ctx, "none")
	fmt.Println(found, err)
	// Output:
	// {ReadsPerMinute:1 WritesPerMinute:1 Reads:1 Writes:1} true <nil>
	// false <nil>
}

func ExampleClient_Publish() {
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
	// Output:
	// false <nil>
	// true <nil>
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

func ExampleClient_WhoAmI() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	who, err := client.WhoAmI(ctx)
	if err != nil {
		panic(err)
	}
	for _, w := range who {
		c, found, err := client.Connection(ctx, w.Server, w.ID)
		fmt.Println(c.Kind, c.Requests.WhoAmI > 0, found, err)
	}
	// Output: tcp true true <nil>
}

func ExampleClient_Connection() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()

	_, found, err := client.Connection(ctx, srv.Addr(), codec.ConnID{})
	fmt.Println(found, err)
	_, _, err = client.Connection(ctx, "elsewhere:9000", codec.ConnID{})
	fmt.Println(err)
	// Output:
	// false <nil>
	// throttr: invalid configuration: "elsewhere:9000" is none of Servers
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
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Key, e.Writes, e.WritesPerMinute)
	}
	// Output: k 4 4
}

func ExampleClient_Connections() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	client.Publish(ctx, "*", nil)
	for c, err := range client.Connections(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Type, c.Kind, c.Addr.Addr(), c.Requests.Publish, c.Requests.Connections)
	}
	// Output:
	// client tcp 127.0.0.1 1 0
	// client tcp 127.0.0.1 0 1
}

func ExampleClient_Channels() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	news, err := client.Subscribe(ctx, "news")
	if err != nil {
		panic(err)
	}
	defer news.Close()
	client.Publish(ctx, "news", []byte("hello"))
	for c, err := range client.Channels(ctx) {
		if err != nil {
			panic(err)
		}
		if c.Name == "news" { // each connection for subscriptions has two channels more
			fmt.Println(c.Name, c.Connections, c.ReadBytes)
		}
	}
	// Output: news 1 5
}

func ExampleClient_Channel() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	news, err := client.Subscribe(ctx, "news")
	if err != nil {
		panic(err)
	}
	defer news.Close()
	subscribers, found, err := client.Channel(ctx, "news")
	fmt.Println(len(subscribers), found, err)
	_, found, err = client.Channel(ctx, "sports")
	fmt.Println(found, err)
	// Output:
	// 1 true <nil>
	// false <nil>
}
