package grpclimit_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// exports is one call at a time of a client.
var exports = inflight.Limit{Name: "exports", Max: 1, Lease: time.Second}

// service serves test.Echo in a bubble, of clients that may have one call in flight.
type service struct {
	*site
	t      *testing.T
	store  *testkit.Remote
	places *inflight.Limiter
	grpc   *grpc.Server
}

func newService(t *testing.T, cfg grpclimit.Config, seen func(context.Context) error) *service {
	s := &service{t: t, store: &testkit.Remote{Backend: memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))}}
	s.places = inflight.New(s.store, inflight.WithLogger(nil))
	cfg.InFlight, cfg.Places = exports, s.places
	cfg.Key, cfg.PlainKeys = func(context.Context, grpclimit.Call) string { return "k" }, true
	server, err := grpclimit.NewServer(throttr.NewRateLimit(s.store.Backend), cfg)
	require.NoError(t, err)
	s.grpc = grpc.NewServer(grpc.ChainUnaryInterceptor(recovered, server.Unary), grpc.ChainStreamInterceptor(recoveredStream, server.Stream))
	s.grpc.RegisterService(&echoService, &echo{seen})
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	s.site = &site{server: server, conn: conn}
	t.Cleanup(func() {
		conn.Close()
		s.grpc.Stop()
		require.NoError(t, <-served)
		s.store.Fail(nil)
		s.places.Close()
	})
	return s
}

// recovered makes an error of a panic.
func recovered(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	defer recovering(&err)
	return handler(ctx, req)
}

func recoveredStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovering(&err)
	return handler(srv, ss)
}

func recovering(err *error) {
	if v := recover(); v != nil {
		*err = status.Errorf(codes.Internal, "%v", v)
	}
}

// inUse returns how many places are held, after everything has happened that can.
func (s *service) inUse() uint64 {
	synctest.Wait()
	state, err := s.places.Peek(s.t.Context(), "client:kk", exports)
	require.NoError(s.t, err)
	return state.InUse
}

// A stream goes on for much longer than a lease. Then it ends in one of the ways in which streams end.
func TestAStreamHoldsItsPlaceUntilItEnds(t *testing.T) {
	for name, end := range map[string]func(s *service, stream grpc.ClientStream, cancel func()){
		"closed":        func(_ *service, stream grpc.ClientStream, _ func()) { stream.CloseSend() },
		"canceled":      func(_ *service, _ grpc.ClientStream, cancel func()) { cancel() },
		"disconnected":  func(s *service, _ grpc.ClientStream, _ func()) { s.conn.Close() },
		"server stops":  func(s *service, _ grpc.ClientStream, _ func()) { s.grpc.Stop() },
		"handler fails": func(_ *service, stream grpc.ClientStream, _ func()) { exchange(stream, "the second message") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, grpclimit.Config{Messages: []throttr.Limit{{Name: "messages", Max: 1, Scale: time.Hour}}}, noError)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream, err := s.chat(ctx)
				require.NoError(t, err)
				require.NoError(t, exchange(stream, "hi"))
				time.Sleep(20 * exports.Lease)
				require.EqualValues(t, 1, s.inUse())
				_, err = s.say(t.Context(), "hi")
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				end(s, stream, cancel)
				require.Zero(t, s.inUse())
			})
		})
	}
}

func TestACallHoldsItsPlaceUntilItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		panics := false
		s := newService(t, grpclimit.Config{}, func(context.Context) error {
			if panics {
				panic("mistake")
			}
			<-end
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.say(ctx, "hi")
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.EqualValues(t, 1, s.inUse(), "the handler does not notice, and works")
		close(end)
		require.Zero(t, s.inUse())
		panics = true
		_, err = s.say(t.Context(), "hi")
		require.Equal(t, codes.Internal, status.Code(err))
		require.Zero(t, s.inUse())
		stream, err := s.chat(t.Context())
		require.NoError(t, err)
		require.Equal(t, codes.Internal, status.Code(exchange(stream, "hi")))
		require.Zero(t, s.inUse())
	})
}

func TestTheStatusWithoutAPlace(t *testing.T) {
	for verdict, code := range map[admission.Verdict]codes.Code{
		0: codes.ResourceExhausted, admission.Deny: codes.ResourceExhausted, admission.Unavailable: codes.Unavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, grpclimit.Config{NoPlace: verdict, Limits: []throttr.Limit{{Name: "minute", Max: 3, Scale: time.Minute}}}, noError)
			held, ok, err := s.places.TryAcquire(t.Context(), "client:kk", exports, 1)
			require.NoError(t, err)
			require.True(t, ok)
			trailer, err := s.say(t.Context(), "hi")
			require.Equal(t, code, status.Code(err))
			require.Equal(t, []string{"0"}, trailer.Get("x-ratelimit-remaining"))
			require.Equal(t, []string{"1"}, trailer.Get("x-ratelimit-reset"))
			require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
			details := status.Convert(err).Details()
			require.Equal(t, time.Second, details[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
			if code == codes.ResourceExhausted {
				v := details[1].(*errdetails.QuotaFailure).Violations[0]
				require.Equal(t, []any{"exports", "1 at a time", "concurrent-requests", int64(1)}, []any{v.QuotaId, v.Description, v.QuotaMetric, v.QuotaValue})
			}
			outcomes, err := s.server.Peek(t.Context(), admission.Request{Key: admission.Key{Text: "k"}})
			require.NoError(t, err)
			require.Zero(t, outcomes[0].Count, "it is not counted")
			require.EqualValues(t, 1, outcomes[1].Count)
			held.Release()
			_, err = s.say(t.Context(), "hi")
			require.NoError(t, err)
			require.Zero(t, s.inUse())
		})
	}
}

func noError(context.Context) error { return nil }
