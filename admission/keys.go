package admission

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
)

// Key is the key of a request in a limit.
type Key struct {
	Text string
	// Plain stores, logs and traces the key as it is, if it has up to 128 bytes, and not as a digest: of addresses,
	// and what is not personal. Config.PlainKeys does so with all keys.
	Plain bool
}

// Everyone is the key of a limit that all requests share.
var Everyone = Key{Text: "everyone", Plain: true}

// maxKey is the length in bytes of the longest key that is stored unchanged.
const maxKey = 128

// Keys in the backend begin with one of these. The last character distinguishes a digest from a key that
// looks like one.
const (
	plainPrefix  = "client:k"
	digestPrefix = "client:h"
)

// StoredKey returns the key that the backend sees: for Forget, and for the throttr command.
func (g *Gate) StoredKey(k Key) string {
	if g.isPlain(k) {
		return plainPrefix + k.Text
	}
	return string(appendDigest(append(make([]byte, 0, 64), digestPrefix...), k.Text))
}

// isPlain reports whether a key is stored as it is. What only looks like an address is not: whoever may choose a key
// must not use up the limit of somebody's address.
func (g *Gate) isPlain(k Key) bool {
	return len(k.Text) <= maxKey && (k.Plain || g.cfg.PlainKeys && !isAddr(k.Text))
}

// isAddr reports whether a text looks like the key of an address, or of everyone.
func isAddr(text string) bool {
	if text == unknown || text == Everyone.Text {
		return true
	}
	_, err := netip.ParseAddr(text)
	if err != nil {
		_, err = netip.ParsePrefix(text)
	}
	return err == nil
}

// Digest returns the SHA-256 of a key, in base64. From it, the key can't be found if it is hard to guess: an
// API key, but not a name or an address.
func Digest(key string) string { return string(appendDigest(nil, key)) }

func appendDigest(b []byte, key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.AppendEncode(b, sum[:])
}

// partitionSize is how many bytes of the digest of a key that is not plain are shown to clients.
const partitionSize = 12
