package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/memory"
)

// The methods of the service test.Echo.
const (
	say  = "/test.Echo/Say"  // unary
	chat = "/test.Echo/Chat" // both sides stream
)

// echo is the service: it responds with what it gets. Tests may look at calls with seen.
type echo struct {
	seen func(ctx context.Context) error
}

func (e *echo) say(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	return in, e.seen(ctx)
}

func (e *echo) chat(stream grpc.ServerStream) error {
	if err := e.seen(stream.Context()); err != nil {
		return err
	}
	for {
		in := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			again := stream.RecvMsg(in) // a handler that goes on gets nothing
			if again == nil {
				return errors.New("received after an error")
			}
			return err
		}
		if err := stream.SendMsg(in); err != nil {
			return err
		}
	}
}

var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Say",
		Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := dec(in); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) {
				return srv.(*echo).say(ctx, req.(*wrapperspb.StringValue))
			}
			if interceptor == nil {
				return handler(ctx, in)
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: say}, handler)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Chat", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error { return srv.(*echo).chat(stream) },
	}},
}

// site is a server with limits, and a client of it.
type site struct {
	clock   backendtest.Clock
	backend *memory.Backend
	limiter *throttr.RateLimit
	server  *grpclimit.Server
	conn    *grpc.ClientConn
}

// newSite serves test.Echo until the test ends. The default of cfg.Limits is 3 a minute, by a clock that
// tests advance.
func newSite(t testing.TB, cfg grpclimit.Config, seen func(context.Context) error, opts ...grpc.DialOption) *site {
	t.Helper()
	s := &site{clock: backendtest.NewClock()}
	s.backend = memory.New(memory.WithClock(s.clock.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { s.backend.Close() })
	s.limiter = throttr.NewRateLimit(s.backend)
	s.start(t, cfg, seen, opts...)
	return s
}

// start serves test.Echo on connections in memory.
func (s *site) start(t testing.TB, cfg grpclimit.Config, seen func(context.Context) error, opts ...grpc.DialOption) {
	t.Helper()
	if cfg.Limits == nil {
		cfg.Limits = []throttr.Limit{{Name: "minute", Max: 3, Scale: time.Minute}}
	}
	if seen == nil {
		seen = func(context.Context) error { return nil }
	}
	var err error
	s.server, err = grpclimit.NewServer(s.limiter, cfg)
	require.NoError(t, err)
	srv := grpc.NewServer(grpc.UnaryInterceptor(s.server.Unary), grpc.StreamInterceptor(s.server.Stream))
	srv.RegisterService(&echoService, &echo{seen})
	network := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(network) }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }
	opts = append(opts, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.conn, err = grpc.NewClient("passthrough:///memory", opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.conn.Close()
		srv.Stop()
		require.NoError(t, <-served)
	})
}

// say calls Say, and returns the trailers.
func (s *site) say(ctx context.Context, text string) (metadata.MD, error) {
	var trailer metadata.MD
	err := s.conn.Invoke(ctx, say, wrapperspb.String(text), new(wrapperspb.StringValue), grpc.Trailer(&trailer))
	return trailer, err
}

// chat opens a stream.
func (s *site) chat(ctx context.Context) (grpc.ClientStream, error) {
	return s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, chat)
}

// exchange sends a message, and receives the response.
func exchange(stream grpc.ClientStream, text string) error {
	if err := stream.SendMsg(wrapperspb.String(text)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(new(wrapperspb.StringValue))
}

// count returns what a limit has counted of a key.
func (s *site) count(t *testing.T, key string, l throttr.Limit) uint64 {
	t.Helper()
	outcomes, err := s.server.Peek(t.Context(), admission.Request{Addr: key, Plan: admission.MustPlan(l)})
	require.NoError(t, err)
	return outcomes[0].Count
}
