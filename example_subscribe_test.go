package throttr_test

import (
	"context"
	"fmt"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/mockserver"
)

func ExampleClient_Subscribe() {
	ctx := context.Background()
	srv, err := mockserver.Start(mockserver.WithValueSize(2))
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	sub, err := client.Subscribe(ctx, "prices", throttr.WithQueue(1000))
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

func ExampleSubscription_Messages() {
	ctx := context.Background()
	srv, err := mockserver.Start(mockserver.WithValueSize(2))
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	sub, err := client.Subscribe(ctx, throttr.OwnChannel)
	if err != nil {
		panic(err)
	}
	id, _ := sub.ConnID(srv.Addr()) // what others need to know to reach us
	if _, err := client.Publish(ctx, id.String(), []byte("hello")); err != nil {
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
