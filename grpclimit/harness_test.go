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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/memory"
)

// The methods of the service of grpc's own tests.
const (
	say  = "/grpc.testing.TestService/UnaryCall"
	chat = "/grpc.testing.TestService/FullDuplexCall"
)

// echo is the service: it responds with what it gets. Tests may look at calls with seen.
type echo struct {
	testgrpc.UnimplementedTestServiceServer
	seen func(ctx context.Context) error
}

// UnaryCall responds to a call.
func (e *echo) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: in.Payload}, e.seen(ctx)
}

// FullDuplexCall responds to each message of a stream.
func (e *echo) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	if err := e.seen(stream.Context()); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if _, again := stream.Recv(); again == nil { // a handler that goes on gets nothing
				return errors.New("received after an error")
			}
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}

// payload is the text of a message.
func payload(text string) *testgrpc.Payload { return &testgrpc.Payload{Body: []byte(text)} }

// site is a server with limits, and a client of it.
type site struct {
	clock   backendtest.Clock
	backend *memory.Backend
	limiter *throttr.RateLimit
	server  *grpclimit.Server
	conn    *grpc.ClientConn
}

// newSite serves the echo until the test ends. The default of cfg.Limits is 3 a minute, by a clock that
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

// start serves the echo on connections in memory.
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
	testgrpc.RegisterTestServiceServer(srv, &echo{seen: seen})
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
	err := s.conn.Invoke(ctx, say, &testgrpc.SimpleRequest{Payload: payload(text)}, new(testgrpc.SimpleResponse), grpc.Trailer(&trailer))
	return trailer, err
}

// unary has a server serve a call, without a network, and returns the code of its status.
func unary(ctx context.Context, s *grpclimit.Server, method string, handler func(context.Context) error) codes.Code {
	info := &grpc.UnaryServerInfo{FullMethod: method}
	_, err := s.Unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) { return nil, handler(ctx) })
	return status.Code(err)
}

// streaming has a server serve a stream, without a network, and returns the code of its status.
func streaming(s *grpclimit.Server, ss grpc.ServerStream, handler func(grpc.ServerStream) error) codes.Code {
	info := &grpc.StreamServerInfo{FullMethod: chat}
	return status.Code(s.Stream(nil, ss, info, func(_ any, ss grpc.ServerStream) error { return handler(ss) }))
}

// chat opens a stream.
func (s *site) chat(ctx context.Context) (grpc.ClientStream, error) {
	return s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, chat)
}

// exchange sends a message, and receives the response.
func exchange(stream grpc.ClientStream, text string) error {
	if err := stream.SendMsg(&testgrpc.StreamingOutputCallRequest{Payload: payload(text)}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(new(testgrpc.StreamingOutputCallResponse))
}

// count returns what a limit has counted of a key.
func (s *site) count(t *testing.T, key string, l throttr.Limit) uint64 {
	t.Helper()
	outcomes, err := s.server.Peek(t.Context(), admission.Request{Addr: key, Plan: admission.MustPlan(l)})
	require.NoError(t, err)
	return outcomes[0].Count
}
