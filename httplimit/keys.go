package httplimit

import (
	"net/http"
	"net/netip"
	"net/textproto"

	"github.com/throttr-go/throttr/admission"
)

// KeyFunc returns the key under which a request is counted. Keys can be combined:
//
//	func(r *http.Request) string { return tenantOf(r) + " " + httplimit.RemoteAddr(r) }
//
// Clients must not be able to choose a part of it, such as the method, a header field that nobody has checked, or the
// path: they would choose a count. [http.Request.Pattern] is empty in middleware around an [http.ServeMux].
type KeyFunc func(*http.Request) string

// AddrConfig says how to find the address that a request comes from, and how many bits of it identify a client. The
// zero AddrConfig trusts no header field: it finds what [RemoteAddr] does. Its fields are those of
// [admission.AddrConfig].
type AddrConfig = admission.AddrConfig

// RemoteAddr is a [KeyFunc]. It returns the IPv4 address, or the first 64 bits of the IPv6
// address, at the other end of the connection, and "unknown" if that is not an IP address: all clients of a Unix socket
// count together.
func RemoteAddr(r *http.Request) string { return admission.Addr(r.RemoteAddr) }

// Everyone is the [KeyFunc] of a limit that all requests share.
func Everyone(*http.Request) string { return admission.Everyone.Text }

// ByAddr returns a [KeyFunc] for the address that a request comes from, by the rules of
// [admission.Addrs]: the header field is believed as far as trusted proxies have written it. The error
// matches [throttr.ErrConfig].
//
//go:noinline
func ByAddr(cfg AddrConfig) (KeyFunc, error) {
	// As it is not inlined, all functions that it returns have the same code: admission.KeyFuncs knows them by that.
	addrs, err := admission.NewAddrs(cfg)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) string { return addrs.Key(r.RemoteAddr, r.Header.Values) }, nil
}

// InNetworks returns a function for Config.Skip and for handlers: it reports whether a request comes from one of the
// networks. It compares whole addresses, found as limits find them. The error matches [throttr.ErrConfig].
func InNetworks(addr AddrConfig, networks ...netip.Prefix) (func(*http.Request) bool, error) {
	addrs, err := admission.NewAddrs(addr)
	if err != nil {
		return nil, err
	}
	contain, err := admission.InNetworks(networks...)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) bool {
		a, ok := addrs.Find(r.RemoteAddr, r.Header.Values)
		return ok && contain(a)
	}, nil
}

// ByHeader returns a KeyFunc whose key is the [HeaderKey] of a header field, or "" if the request
// does not have the field or has an empty one. Check the field first, see package admission: a client
// that can invent keys has a limit of its own for each of them.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) string {
		value := r.Header.Get(name)
		if value == "" {
			return ""
		}
		return HeaderKey(name, value)
	}
}

// HeaderKey returns the key of a value of a header field, such as an API key. It consists of the
// name of the field and a digest of the value, from which the value can't be found if it is hard
// to guess. A Decision can be logged with it.
func HeaderKey(name, value string) string {
	return textproto.CanonicalMIMEHeaderKey(name) + ":" + admission.Digest(value)
}
