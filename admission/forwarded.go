package admission

import (
	"net/netip"
	"strings"
)

// parseNode parses an address, without its zone, and IPv4 not mapped to IPv6, with or without a port: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. The port may be obfuscated (RFC 7239, 6.3). parseNode
// returns false for anything else, such as "unknown".
func parseNode(s string) (netip.Addr, bool) {
	host := s
	var port string
	var hasPort bool
	if inner, ok := strings.CutPrefix(s, "["); ok {
		var after string
		if host, after, ok = strings.Cut(inner, "]"); !ok || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
		if port, hasPort = strings.CutPrefix(after, ":"); !hasPort && after != "" {
			return netip.Addr{}, false
		}
	} else if strings.Count(s, ":") == 1 {
		host, port, hasPort = strings.Cut(s, ":")
	}
	if hasPort && !isPort(port) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.WithZone("").Unmap(), true
}

// isPort reports whether s is 1 to 5 digits, or a name that begins with an underscore.
func isPort(s string) bool {
	name, obfuscated := strings.CutPrefix(s, "_")
	if obfuscated {
		return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
			return !isAlphanumeric(c) && c != '.' && c != '_' && c != '-'
		})
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && len(s) <= 5
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
func forParameter(element string) string {
	node := ""
	for {
		p, rest, ok := parameter(element)
		if !ok {
			return ""
		}
		if strings.EqualFold(p.name, "for") {
			if node != "" || p.value == "" {
				return ""
			}
			node = p.value
		}
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return node
		}
		if element, ok = strings.CutPrefix(rest, ";"); !ok {
			return ""
		}
	}
}

// pair is a parameter.
type pair struct{ name, value string }

// parameter splits the first parameter, such as for=192.0.2.1 or for="[2001:db8::1]", off an
// element.
func parameter(element string) (p pair, rest string, ok bool) {
	name, rest, ok := strings.Cut(strings.TrimLeft(element, " \t"), "=")
	if !ok || name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isTokenChar(c) }) {
		return p, "", false
	}
	if quoted, isQuoted := strings.CutPrefix(rest, `"`); isQuoted {
		value, rest, ok := unquote(quoted)
		return pair{name, value}, rest, ok
	}
	end := strings.IndexAny(rest, "; \t")
	if end < 0 {
		end = len(rest)
	}
	value, rest := rest[:end], rest[end:]
	// Some proxies do not quote addresses that contain a colon, as they should.
	ok = !strings.ContainsFunc(value, func(c rune) bool { return !isTokenChar(c) && c != ':' && c != '[' && c != ']' })
	return pair{name, value}, rest, ok
}

// unquote returns the value of a quoted string, whose opening mark is already removed, and the
// text after it.
func unquote(s string) (value, rest string, ok bool) {
	end := strings.IndexByte(s, '"')
	if end >= 0 && strings.IndexByte(s[:end], '\\') < 0 {
		return s[:end], s[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// isTokenChar reports whether c may be in a token (RFC 9110, 5.6.2).
func isTokenChar(c rune) bool {
	return isAlphanumeric(c) || c < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

func isAlphanumeric(c rune) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
