package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/memory"
)

// A service has a limit for each client's address, with these lines.
func ExampleNewServer() {
	limiter := throttr.NewRateLimit(memory.New())
	limit, err := grpclimit.NewServer(limiter, grpclimit.Config{
		Limits: []throttr.Limit{{Name: "minute", Max: 100, Scale: time.Minute}},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	fmt.Println(len(server.GetServiceInfo()), "services are registered so far")
	// Output: 0 services are registered so far
}

// call calls a method of a server with limits. Really, a client would.
func call(limit *grpclimit.Server, ctx context.Context, method string) error {
	_, err := limit.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
		d, _ := admission.FromContext(ctx)
		fmt.Printf("served, %d remain of %s\n", d.Strictest.Remaining, d.Strictest.Name)
		return nil, nil
	})
	return err
}

// Each account has limits, and exports have others.
func ExampleConfig_methods() {
	type accountKey struct{} // set by the interceptor that authenticates
	limit, err := grpclimit.NewServer(throttr.NewRateLimit(memory.New()), grpclimit.Config{
		Limits: []throttr.Limit{{Name: "calls", Max: 1000, Scale: time.Minute}},
		Methods: map[string][]throttr.Limit{
			"/shop.Reports/Export": {{Name: "exports", Max: 1, Scale: time.Hour}},
		},
		Key:        func(ctx context.Context, _ grpclimit.Call) string { return ctx.Value(accountKey{}).(string) },
		FailClosed: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.WithValue(context.Background(), accountKey{}, "ann")
	for _, method := range []string{"/shop.Reports/Export", "/shop.Reports/Export", "/shop.Reports/List"} {
		if err := call(limit, ctx, method); err != nil {
			fmt.Println(status.Code(err), status.Convert(err).Message())
			for _, detail := range status.Convert(err).Details() {
				if quota, ok := detail.(*errdetails.QuotaFailure); ok {
					v := quota.Violations[0]
					fmt.Println(v.ApiService, v.QuotaMetric, v.QuotaId, v.QuotaValue)
				}
			}
		}
	}
	// Output:
	// served, 0 remain of exports
	// ResourceExhausted Too many requests. Try again in 60 min.
	// shop.Reports requests exports 1
	// served, 999 remain of calls
}
