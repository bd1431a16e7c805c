package rediswindow

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxPlain is the length in bytes of the longest key that is part of the name of its hash.
const maxPlain = 128

// name returns the name of a key's hash in Redis:
//
//   - It has one pair of braces, and the text between them is never empty. This text is the hash
//     tag, which decides on the slot in a cluster.
//   - The hash tag depends on the key alone, and differs for different keys.
//   - The first letter of the hash tag distinguishes keys from digests of keys.
//   - It ends with the version of what is stored, so that no release misreads what another one stores.
func (b *Backend) name(key string) string { return b.prefix + "{" + hashTag(key) + "}" + version }

// version is that of what is stored. Whoever changes what is stored changes it.
const version = ":v1"

// hashTag returns the hash tag of a key.
func hashTag(key string) string {
	if len(key) > maxPlain || strings.ContainsAny(key, "{}") {
		sum := sha256.Sum256([]byte(key))
		return "h:" + hex.EncodeToString(sum[:])
	}
	return "k:" + key
}
