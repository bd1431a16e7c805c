package throttr_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/pubsub"
)

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
