package admission

import (
	"crypto/sha256"
	"encoding/base64"
)

// maxKey is the length in bytes of the longest key that is stored unchanged.
const maxKey = 128

// Keys in the backend begin with one of these. The last character distinguishes a digest from a key that
// looks like one.
const (
	plainPrefix  = "client:k"
	digestPrefix = "client:h"
)

// storedKey returns the key that the backend sees.
func (g *Gate) storedKey(key string) string {
	prefix, rest := g.storedParts(key)
	return prefix + rest
}

// storedParts returns the parts of the key that the backend sees.
func (g *Gate) storedParts(key string) (prefix, rest string) {
	if g.isPlain(key) {
		return plainPrefix, key
	}
	return digestPrefix, Digest(key)
}

// isPlain reports whether a key is stored as it is.
func (g *Gate) isPlain(key string) bool { return g.cfg.PlainKeys && len(key) <= maxKey }

// Digest returns the SHA-256 of a key, in base64. From it, the key can't be found if it is hard to guess: an
// API key, but not a name or an address.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Partition returns what tells the request's client apart from others, and may be shown to that client: the
// key if keys are plain, and otherwise the first 12 bytes of its SHA-256 digest, in base64.
func (d Decision) Partition() string {
	if d.gate == nil || d.gate.isPlain(d.Key) {
		return d.Key
	}
	return base64.RawURLEncoding.EncodeToString(d.partitionKey())
}

// partitionKey returns the bytes of Partition.
func (d *Decision) partitionKey() []byte {
	if d.gate.isPlain(d.Key) {
		return []byte(d.Key)
	}
	sum := sha256.Sum256([]byte(d.Key))
	return sum[:12]
}
