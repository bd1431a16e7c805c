package dial

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Address is where a server listens.
type Address struct {
	Network string // "tcp" or "unix"
	Address string // "host:port", or the path of a socket
}

// ParseAddress parses "host:port" or "unix:///path/to/socket". Its errors do not repeat a
// URL, which may contain a password.
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
	switch _, port, err := net.SplitHostPort(s); {
	case err != nil:
		return Address{}, fmt.Errorf("%q is neither host:port nor unix:///path: %w", s, err)
	case port == "":
		return Address{}, fmt.Errorf("%q has no port", s)
	}
	return Address{Network: "tcp", Address: s}, nil
}
