package throttr_test

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

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
