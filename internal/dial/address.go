package dial

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"
)

// Address is where a server listens.
type Address struct {
	Network string // "tcp" or "unix"
	Address string // "host:port", or the path of a socket
}

// ParseAddress parses "host:port" or "unix:///path/to/socket". Its errors do not repeat a
// URL or credentials.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		if path == "" {
			return Address{}, fmt.Errorf("%q has no path", s)
		}
		return Address{Network: "unix", Address: path}, nil
	}
	if strings.Contains(s, "://") {
		return Address{}, errors.New("a URL is not an address: use the Config that ParseURL makes of it")
	}
	if strings.Contains(s, "@") {
		return Address{}, errors.New("an address has no credentials")
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		var addrError *net.AddrError
		if errors.As(err, &addrError) && addrError.Err == "missing port in address" {
			return Address{}, fmt.Errorf("%q is neither host:port nor unix:///path: it has no port; the usual one is 9000", s)
		}
		return Address{}, fmt.Errorf("%q is neither host:port nor unix:///path: %w", s, err)
	}
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case port == "":
		return Address{}, fmt.Errorf("%q has no port; the usual one is 9000", s)
	case err != nil || n == 0:
		return Address{}, fmt.Errorf("%q has the port %q, which is not a number from 1 to 65535", s, port)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return Address{}, fmt.Errorf("%q has a space or a control character in its host", s)
	}
	return Address{Network: "tcp", Address: s}, nil
}
