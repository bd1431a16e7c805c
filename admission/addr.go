package admission

import (
	"cmp"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
)

// AddrConfig configures [NewAddrs]: how to find the address that a request comes from, and how
// many bits of it identify a client. The zero AddrConfig trusts no header field.
type AddrConfig struct {
	// IPv6Bits is the number of leading bits of an IPv6 address that identify a client. A
	// single IPv6 connection usually has 64 bits of addresses to choose from. Default: 64.
	IPv6Bits int
	// IPv4Bits is the same for IPv4. Default: 32.
	IPv4Bits int

	// Proxies are the addresses of trusted proxies. A prefix of 0 bits is an error.
	// Default: none.
	Proxies []netip.Prefix
	// UnixProxy trusts all connections over a Unix socket as proxies.
	UnixProxy bool
	// Header is the field in which the proxies pass on the address of their client: a field
	// of addresses separated by commas, such as "X-Forwarded-For", or a field of one address,
	// such as "X-Real-IP". The field "Forwarded" (RFC 7239) is an error. Each proxy must
	// append the address of its client to the field, or replace the field. There is no
	// default: a field that the proxies do not set is under the control of the client.
	Header string
	// Hops is for platforms whose proxies have addresses that nobody knows: so many elements at the end of the
	// Header are trusted, and the first of them is the client; 1 is the last element. With fewer, it is the first
	// that there is. Whoever reaches the server without these proxies can forge it. It can't be combined with
	// Proxies and UnixProxy. Default: none.
	Hops int
}

// Addrs finds the addresses that requests come from.
type Addrs struct{ cfg AddrConfig } // with its defaults; Proxies as normalAll returns them

// direct trusts no header field.
var direct = Addrs{AddrConfig{IPv4Bits: 32, IPv6Bits: 64}}

// token is the form of the name of a field (RFC 9110, 5.6.2).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// unknown is the key of all requests whose address is not known.
const unknown = "unknown"

// Addr returns the key of a remote address, with or without a port: the IPv4 address, or the first 64 bits
// of the IPv6 address, and "unknown" if it is not an IP address, such as that of a Unix socket.
func Addr(remote string) string { return direct.Key(remote, nil) }

// NewAddrs returns what finds addresses. The error matches [throttr.ErrConfig].
func NewAddrs(cfg AddrConfig) (*Addrs, error) {
	proxies, err := normalAll(cfg.Proxies)
	if err != nil {
		return nil, err
	}
	trusting := len(proxies) > 0 || cfg.UnixProxy
	switch {
	case cfg.IPv4Bits < 0 || cfg.IPv4Bits > 32:
		return nil, invalid("IPv4Bits is 1 to 32, or 0 for the default, not %d", cfg.IPv4Bits)
	case cfg.IPv6Bits < 0 || cfg.IPv6Bits > 128:
		return nil, invalid("IPv6Bits is 1 to 128, or 0 for the default, not %d", cfg.IPv6Bits)
	case cfg.Hops < 0 || cfg.Hops > 0 && trusting:
		return nil, invalid("Hops is at least 0, and not beside Proxies or UnixProxy")
	case (trusting || cfg.Hops > 0) && cfg.Header == "":
		return nil, invalid("there are proxies, but no Header that they set")
	case !trusting && cfg.Hops == 0 && cfg.Header != "":
		return nil, invalid("there is a Header, but no proxy that sets it")
	case cfg.Header != "" && !token.MatchString(cfg.Header):
		return nil, invalid("%q is not the name of a header field", cfg.Header)
	}
	cfg.Header = textproto.CanonicalMIMEHeaderKey(cfg.Header)
	if cfg.Header == "Forwarded" {
		return nil, invalid("the field Forwarded is not read: let the proxies set X-Forwarded-For")
	}
	cfg.IPv4Bits = cmp.Or(cfg.IPv4Bits, direct.cfg.IPv4Bits)
	cfg.IPv6Bits = cmp.Or(cfg.IPv6Bits, direct.cfg.IPv6Bits)
	cfg.Proxies = proxies
	return &Addrs{cfg}, nil
}

// normalAll returns networks that match addresses as Find returns them, in which IPv4 is never mapped to IPv6.
func normalAll(networks []netip.Prefix) (all []netip.Prefix, err error) {
	for _, p := range networks {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Bits() <= 0 {
			return nil, invalid("the network %v is invalid, or contains every address", p)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// containAny reports whether one of some networks contains an address.
func containAny(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Key returns the key of the client whose request came from a remote address. If that is a trusted proxy,
// Key reads the lines of the header field, which values returns, from the end, because the end is what the
// nearest proxy has written:
//
//   - It skips the addresses of trusted proxies.
//   - The first other address is the client's. The rest of the field is ignored.
//   - If an element is not an address, such as "unknown", or if the field ends, the key is that of the last
//     address that was read: that of a proxy.
//
// An IPv4 address that is mapped to IPv6 is treated as IPv4. Zones and ports are dropped. The key is an address, or a
// prefix if it has fewer bits, such as "2001:db8::/64". It is "unknown" if the remote address is not an IP address,
// such as that of a Unix socket, and the field contains none: such requests count together. Values gets the name of
// the field in its canonical form.
func (a *Addrs) Key(remote string, values func(name string) []string) string {
	client, ok := a.Find(remote, values)
	if !ok {
		return unknown
	}
	bits := a.cfg.IPv6Bits
	if client.Is4() {
		bits = a.cfg.IPv4Bits
	}
	if bits == client.BitLen() {
		return client.String()
	}
	p, _ := client.Prefix(bits)
	return p.String()
}

// Find returns the whole address of the client whose request came from a remote address, by the rules of Key. It
// returns false if there is none.
func (a *Addrs) Find(remote string, values func(name string) []string) (client netip.Addr, ok bool) {
	client, ok = parseNode(remote)
	if a.cfg.Hops == 0 && !a.isProxy(client, remote) {
		return client, ok
	}
	read := 0 // how many addresses of the field
	for _, line := range slices.Backward(values(a.cfg.Header)) {
		for more := true; more; {
			comma := strings.LastIndexByte(line, ',')
			passedOn, valid := parseNode(strings.Trim(line[comma+1:], " \t"))
			if !valid {
				return client, ok
			}
			more = comma >= 0
			line = line[:max(0, comma)]
			client, ok = passedOn, true
			read++
			if read == a.cfg.Hops || a.cfg.Hops == 0 && !containAny(a.cfg.Proxies, client) {
				return client, ok
			}
		}
	}
	return client, ok
}

// isProxy reports whether a request came from a trusted proxy: by the address of a node, or by the remote address of a
// Unix socket, which is a path, an abstract name, or, for most clients, nothing.
func (a *Addrs) isProxy(node netip.Addr, remote string) bool {
	return containAny(a.cfg.Proxies, node) ||
		a.cfg.UnixProxy && (remote == "" || remote[0] == '@' || remote[0] == '/')
}

// InNetworks returns a function that reports whether an address, such as that of Find, is in one of the networks. The
// error matches [throttr.ErrConfig]: there are none, or one is invalid or contains every address.
func InNetworks(networks ...netip.Prefix) (func(netip.Addr) bool, error) {
	if len(networks) == 0 {
		return nil, invalid("there are no networks")
	}
	all, err := normalAll(networks)
	if err != nil {
		return nil, err
	}
	return func(a netip.Addr) bool { return containAny(all, a) }, nil
}

// parseNode parses an address, without its zone, and IPv4 not mapped to IPv6, with or without a port: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. It returns false for anything else, such as "unknown".
func parseNode(s string) (netip.Addr, bool) {
	if node, err := netip.ParseAddrPort(s); err == nil {
		return node.Addr().WithZone("").Unmap(), true
	}
	if strings.Contains(s, ":") && strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	return addr.WithZone("").Unmap(), err == nil
}
