package grpclimit

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/throttr-go/throttr/admission"
)

// KeyFunc returns the key under which a call is counted. It can be the account that an interceptor before
// this one has authenticated, and has the method if each method counts by itself:
//
//	func(ctx context.Context, c grpclimit.Call) string { return throttr.Key(c.Method, account(ctx)) }
type KeyFunc func(context.Context, Call) string

// Peer is a [KeyFunc]. It returns the IPv4 address, or the first 64 bits of the IPv6 address, at the other
// end of the connection, and "unknown" if that is not an IP address: all clients of a Unix socket count together.
func Peer(ctx context.Context, _ Call) string { return admission.Addr(remote(ctx)) }

// ByAddr returns a [KeyFunc] for the address that a call comes from, by the rules of [admission.Addrs]: the
// metadata of the name cfg.Header are believed as far as trusted proxies have written them. The error
// matches throttr.ErrConfig.
//
//go:noinline
func ByAddr(cfg admission.AddrConfig) (KeyFunc, error) {
	// As it is not inlined, all functions that it returns have the same code: admission.KeyFuncs knows them by that.
	addrs, err := admission.NewAddrs(cfg)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ Call) string {
		return addrs.Key(remote(ctx),
			func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) })
	}, nil
}

// Everyone is the [KeyFunc] of a limit that all calls share.
func Everyone(context.Context, Call) string { return admission.Everyone.Text }

// ByMetadata returns a [KeyFunc] whose key is the name and a digest of the first value of metadata, or ""
// if there is none. Check the value first, see package admission: a client that can invent keys has a limit
// of its own for each of them.
func ByMetadata(name string) KeyFunc {
	name = strings.ToLower(name)
	return func(ctx context.Context, _ Call) string {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 || values[0] == "" {
			return ""
		}
		return name + ":" + admission.Digest(values[0])
	}
}

// remote returns the address of the peer, or "".
func remote(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}
