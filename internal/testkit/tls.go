package testkit

import (
	"context"
	"net"
)

// DialLoopback connects to the address's port on this machine, whatever the host, so that the
// host is only the name that TLS verifies.
func DialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
}
