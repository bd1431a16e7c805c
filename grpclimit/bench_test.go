package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/memory"
)

func BenchmarkInterceptor(b *testing.B) {
	for name, interceptor := range interceptors(b) {
		b.Run(name, func(b *testing.B) {
			info := &grpc.UnaryServerInfo{FullMethod: say}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = interceptor(b.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil })
			}
		})
	}
}

// interceptors returns those that are measured.
func interceptors(b *testing.B) map[string]grpc.UnaryServerInterceptor {
	const many = 1_000_000_000
	all := map[string]grpc.UnaryServerInterceptor{
		"empty": func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return handler(ctx, req)
		},
	}
	hour, day := throttr.Limit{Name: "hour", Max: many, Scale: time.Hour}, throttr.Limit{Name: "day", Max: many, Scale: 24 * time.Hour}
	for name, cfg := range map[string]grpclimit.Config{
		"one limit":              {Limits: []throttr.Limit{hour}},
		"one limit, no trailers": {Limits: []throttr.Limit{hour}, HideTrailers: true},
		"two limits":             {Limits: []throttr.Limit{hour, day}},
		"denied":                 {Limits: []throttr.Limit{{Name: "none", Scale: time.Hour}}},
	} {
		backend := memory.New()
		b.Cleanup(func() { backend.Close() })
		limit, err := grpclimit.NewServer(throttr.NewRateLimit(backend), cfg)
		require.NoError(b, err)
		all[name] = limit.Unary
	}
	return all
}
