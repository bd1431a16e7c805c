package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// KeyFunc returns whom a request counts for. Combine keys as you like:
//
//	func(r *http.Request) string { return r.Method + " " + httplimit.RemoteAddr(r) }
type KeyFunc func(*http.Request) string

// AddrConfig says which address a request comes from, and how much of it is one client. The
// zero AddrConfig believes nobody, and is [RemoteAddr].
type AddrConfig struct {
	// IPv6Bits is how many bits of an IPv6 address are one client. Somebody with an
	// IPv6 connection has at least 64 bits of addresses for himself. Default: 64.
	IPv6Bits int
	// IPv4Bits is the same for IPv4. Default: 32, each address.
	IPv4Bits int

	// Proxies are the addresses of the proxies in front. No prefix may be of 0 bits.
	// Default: none.
	Proxies []netip.Prefix
	// UnixProxy says that who connects over a Unix socket is a proxy.
	UnixProxy bool
	// Header is the field in which the proxies pass on where a request has come from;
	// there is no default, as one that they don't set would be the client's. It is
	// "Forwarded" (RFC 7239), or a field of addresses separated by commas, such as
	// "X-Forwarded-For", or of one address, such as "X-Real-IP". Each proxy must add at the
	// end of it who has connected to it, or replace it.
	Header string
}

// RemoteAddr is a [KeyFunc]: the IPv4 address, or the first 64 bits of the IPv6 address, of
// who is at the other end of the connection. It returns "" where that is no IP address.
func RemoteAddr(r *http.Request) string { return remoteAddr.key(r) }

var remoteAddr = addrs{v4Bits: 32, v6Bits: 64}

// ByAddr returns a [KeyFunc] for the address that a request comes from. The error matches
// [ErrConfig].
//
// The header field, all its lines together, is read from its end, as that is what the
// nearest proxy has written. Addresses of proxies are passed over, and the first one that
// is no proxy's is the client's, however the field goes on. At something that is no address,
// such as "unknown", reading ends, and the request counts for the proxy that has passed it
// on: the last one whose address is known. So it does if the field ends there.
//
// IPv4 addresses that are mapped to IPv6 are IPv4 addresses; zones and ports are left out.
// The key is an address, or, if bits are left out, a prefix, such as "2001:db8::/64". It is
// "" for a connection that has no IP address, if none is passed on.
func ByAddr(cfg AddrConfig) (KeyFunc, error) {
	a := addrs{unix: cfg.UnixProxy, header: textproto.CanonicalMIMEHeaderKey(cfg.Header)}
	var err error
	if a.v4Bits, err = prefixBits("IPv4Bits", cfg.IPv4Bits, remoteAddr.v4Bits, 32); err != nil {
		return nil, err
	}
	if a.v6Bits, err = prefixBits("IPv6Bits", cfg.IPv6Bits, remoteAddr.v6Bits, 128); err != nil {
		return nil, err
	}
	for _, p := range cfg.Proxies {
		p, ok := normal(p)
		if !ok {
			return nil, fmt.Errorf("%w: %v in Proxies is invalid, or everybody", ErrConfig, p)
		}
		a.proxies = append(a.proxies, p)
	}
	trusting := len(a.proxies) > 0 || a.unix
	if trusting && cfg.Header == "" {
		return nil, fmt.Errorf("%w: there are proxies, but no Header that they set", ErrConfig)
	}
	if !trusting && cfg.Header != "" {
		return nil, fmt.Errorf("%w: there is a Header, but no proxy that sets it", ErrConfig)
	}
	if strings.ContainsFunc(cfg.Header, func(c rune) bool { return !isTokenChar(c) }) {
		return nil, fmt.Errorf("%w: %q is no header field's name", ErrConfig, cfg.Header)
	}
	return a.key, nil
}

// prefixBits returns a prefix's length as configured.
func prefixBits(name string, bits, byDefault, most int) (int, error) {
	if bits < 0 || bits > most {
		return 0, fmt.Errorf("%w: %s is 1 to %d, or 0 for the default, not %d", ErrConfig, name, most, bits)
	}
	if bits == 0 {
		return byDefault, nil
	}
	return bits, nil
}

// addrs finds addresses of requests.
type addrs struct {
	v4Bits, v6Bits int
	proxies        []netip.Prefix
	unix           bool
	header         string
}

// normal returns a prefix that matches addresses as they are here: IPv4 addresses are never
// mapped to IPv6. It returns false for one that is not valid, or that is everybody's.
func normal(p netip.Prefix) (netip.Prefix, bool) {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), p.IsValid() && p.Bits() > 0
}

// key returns the key of a request.
func (a *addrs) key(r *http.Request) string {
	addr := a.find(r)
	bits := a.v6Bits
	if addr.Is4() {
		bits = a.v4Bits
	}
	p, err := addr.Prefix(bits)
	switch {
	case err != nil || !addr.IsValid():
		return ""
	case p.IsSingleIP():
		return addr.String()
	default:
		return p.String()
	}
}

// find returns the address that a request comes from, the zero Addr if there is none.
func (a *addrs) find(r *http.Request) netip.Addr {
	addr, ok := parseNode(r.RemoteAddr)
	if a.header == "" || !(ok && a.isProxy(addr) || !ok && a.unix && isUnix(r.RemoteAddr)) {
		return addr
	}
	for _, line := range slices.Backward(r.Header[a.header]) {
		for more := true; more; {
			var node string
			node, line, more = a.last(line)
			passedOn, ok := parseNode(node)
			if !ok {
				return addr
			}
			addr = passedOn
			if !a.isProxy(addr) {
				return addr
			}
		}
	}
	return addr
}

// last cuts the last node off a line, and returns whether there are more.
func (a *addrs) last(line string) (node, rest string, more bool) {
	if a.header == "Forwarded" {
		element, rest, more := lastElement(line)
		return forParameter(element), rest, more
	}
	i := strings.LastIndexByte(line, ',')
	return strings.Trim(line[i+1:], " \t"), line[:max(0, i)], i >= 0
}

func (a *addrs) isProxy(addr netip.Addr) bool {
	return slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// isUnix reports whether a remote address is that of a Unix socket: a path, an abstract
// name, or, as with most clients, none.
func isUnix(remote string) bool {
	return remote == "" || remote[0] == '@' || remote[0] == '/'
}
