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
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = escapeKey.Replace(p)
	}
	return strings.Join(escaped, ":")
}

var escapeKey = strings.NewReplacer(`:`, `\:`, `\`, `\\`)
