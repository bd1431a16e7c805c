package throttr

import "strings"

// Key makes one key of several parts, such as a user and an address:
//
//	throttr.Key("user", "42", "ip", "2001:db8::1")   // user:42:ip:2001\:db8\:\:1
//
// The parts are separated by colons. A colon or backslash in a part is written with a backslash
// before it. So two lists of parts never have the same key, whatever bytes they have. (A list of
// no parts has the key of one empty part.)
func Key(parts ...string) string {
	size := len(parts)
	special := false
	for _, p := range parts {
		size += len(p)
		special = special || strings.ContainsAny(p, `:\`)
	}
	if !special {
		return strings.Join(parts, ":")
	}
	b := make([]byte, 0, size+8)
	for i, p := range parts {
		if i > 0 {
			b = append(b, ':')
		}
		for _, c := range []byte(p) {
			if c == ':' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
	}
	return string(b)
}
