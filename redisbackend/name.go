package redisbackend

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxPlain is the longest key, in bytes, that is written out in the name of its hash.
const maxPlain = 128

// name returns the name of a key's hash in Redis. Between its braces, which are the only
// ones, is the whole of what tells keys apart, and never nothing: it alone decides on the
// slot in a cluster. The letter sets keys that are written out apart from hashes of keys.
func (b *Backend) name(key string) string {
	if len(key) > maxPlain || strings.ContainsAny(key, "{}") {
		sum := sha256.Sum256([]byte(key))
		return b.prefix + "{h:" + hex.EncodeToString(sum[:]) + "}"
	}
	return b.prefix + "{k:" + key + "}"
}
