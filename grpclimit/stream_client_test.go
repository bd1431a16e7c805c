package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/memory"
)

// After CloseAndRecv, grpc-go has released the stream.
func TestTheContextOfAnUploadEndsWithIt(t *testing.T) {
	b := memory.New()
	defer b.Close()
	client := grpclimit.NewClient(throttr.NewRateLimit(b), grpclimit.ClientConfig{Takes: func(context.Context, grpclimit.Call) []throttr.Take { return nil }})
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	desc := grpc.StreamDesc{StreamName: "Upload", ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
		for {
			if err := ss.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				return ss.SendMsg(wrapperspb.String("ok"))
			}
		}
	}}
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Up", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, 1)
	go srv.Serve(l)
	defer srv.Stop()
	var seen context.Context
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithChainStreamInterceptor(client.Stream, func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, m string, s grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			seen = ctx
			return s(ctx, d, cc, m, o...)
		}))
	require.NoError(t, err)
	defer conn.Close()
	parent, cancel := context.WithCancel(context.Background()) // that of a program
	defer cancel()
	cs, err := conn.NewStream(parent, &desc, "/test.Up/Upload")
	require.NoError(t, err)
	require.NoError(t, cs.SendMsg(wrapperspb.String("a")))
	require.NoError(t, cs.CloseSend())
	require.NoError(t, cs.RecvMsg(new(wrapperspb.StringValue))) // CloseAndRecv
	require.Error(t, seen.Err(), "the call is over, and its context stays a child of its parent")
}

// Details are texts in UTF-8; a key need not be one.
func TestDetailsOfAKeyThatIsNoText(t *testing.T) {
	s := newSite(t, grpclimit.Config{PlainKeys: true, Key: func(ctx context.Context, _ grpclimit.Call) string {
		return metadata.ValueFromIncomingContext(ctx, "id-bin")[0]
	}}, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "id-bin", "\xff\xfe")
	var err error
	for range 4 {
		_, err = s.say(ctx, "x")
	}
	require.Error(t, err)
	require.NotEmpty(t, status.Convert(err).Details(), "%v", err)
}
