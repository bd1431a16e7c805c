package admission

import (
	"net/netip"
	"regexp"
	"strings"
)

// Parts of header fields.
const (
	tokenChars = "!#$%&'*+.^_`|~0-9A-Za-z-" // RFC 9110, 5.6.2
	// Some proxies do not quote addresses that contain a colon, as they should.
	unquoted = `([` + tokenChars + `:\[\]]*)`
	quoted   = `"((?:[^"\\]|\\.)*)"`
)

var (
	token          = regexp.MustCompile(`^[` + tokenChars + `]+$`)
	parameter      = regexp.MustCompile(`(?s)^[ \t]*([` + tokenChars + `]+)=(?:` + quoted + `|` + unquoted + `)[ \t]*(;|$)`)
	escaped        = regexp.MustCompile(`(?s)\\(.)`)
	obfuscatedPort = regexp.MustCompile(`^[0-9A-Za-z._-]+$`) // without its underscore
)

// parseNode parses an address, without its zone, and IPv4 not mapped to IPv6, with or without a port: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. The port may be obfuscated (RFC 7239, 6.3), as in
// 192.0.2.1:_web. parseNode returns false for anything else, such as "unknown".
func parseNode(s string) (netip.Addr, bool) {
	if node, err := netip.ParseAddrPort(s); err == nil {
		return node.Addr().WithZone("").Unmap(), true
	}
	host, port, obfuscated := strings.Cut(s, ":_")
	if obfuscated && !obfuscatedPort.MatchString(port) {
		return netip.Addr{}, false
	}
	if strings.Contains(host, ":") && strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	addr, err := netip.ParseAddr(host)
	return addr.WithZone("").Unmap(), err == nil
}

// lastElement splits the last element off a Forwarded field. It reads backwards, because the end
// is what a proxy has written. A client that opens a quoted string and does not close it must
// not hide that part. Read backwards, a quotation mark outside a quoted string ends one. The
// string begins at the next mark that has no backslash, or an even number of them, before it.
func lastElement(line string) (element, rest string, more bool) {
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ',':
			return line[i+1:], line[:i], true
		case '"':
			for i--; i >= 0 && (line[i] != '"' || isEscaped(line, i)); i-- {
			}
		}
	}
	return line, "", false
}

// isEscaped reports whether the character at i has an odd number of backslashes before it.
func isEscaped(s string, i int) bool {
	return (i-len(strings.TrimRight(s[:i], `\`)))%2 == 1
}

// forParameter returns the for parameter of an element of a Forwarded field. It returns "" if
// the element has none or several, or is malformed. A valid parameter is never empty.
func forParameter(element string) (node string) {
	for more := true; more; {
		p := parameter.FindStringSubmatch(element)
		if p == nil {
			return ""
		}
		name, value := p[1], escaped.ReplaceAllString(p[2], "$1")+p[3]
		element = element[len(p[0]):]
		more = p[4] == ";"
		if !strings.EqualFold(name, "for") {
			continue
		}
		if node != "" || value == "" {
			return ""
		}
		node = value
	}
	return node
}
