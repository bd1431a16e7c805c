package admission_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/memory"
)

// An adapter maps a request of its framework to a key, and the decision to a response.
func ExampleGate() {
	gate, err := admission.New(throttr.NewRateLimit(memory.New()), admission.Config{
		Limits: []throttr.Limit{{Name: "minute", Max: 2, Scale: time.Minute}},
	})
	if err != nil {
		log.Fatal(err)
	}
	serve := func(ctx context.Context, remote string, next func(context.Context) string) string {
		d := gate.Admit(ctx, admission.Request{Addr: admission.Addr(remote)})
		defer d.Done()
		if v := d.Verdict(); v != admission.Serve {
			return fmt.Sprint(v.HTTPStatus(), ": ", d.Text())
		}
		return next(d.Context())
	}
	for range 3 {
		fmt.Println(serve(context.Background(), "192.0.2.1:4711", func(ctx context.Context) string {
			d, _ := admission.FromContext(ctx)
			return fmt.Sprintf("%s may send %d more: %s", d.Strictest.Key, d.Strictest.Remaining, d.LimitField())
		}))
	}
	// Output:
	// 192.0.2.1 may send 1 more: "minute";r=1;t=60
	// 192.0.2.1 may send 0 more: "minute";r=0;t=60
	// 429: Too many requests. Try again in 60 s.
}
