package rediswindow

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxPlain is the length in bytes of the longest key that is part of the name of its hash.
const maxPlain = 128

// nameOf returns the name of a key's hash in Redis:
//
//   - It has one pair of braces, and the text between them is never empty. This text is the hash
//     tag, which decides on the slot in a cluster.
//   - The hash tag depends on the key alone, and differs for different keys.
//   - The first letter of the hash tag distinguishes keys from digests of keys.
//   - It ends with the version of what is stored, so that no release misreads what another one stores.
func (b *Backend) nameOf(key string) string { return b.nameWith(key, version, "") }

// nameWith returns the name of what is stored of a key: with the version, and with more behind it.
func (b *Backend) nameWith(key, version, more string) string {
	var space [128]byte
	to := append(append(space[:0], b.prefix...), '{')
	to = append(append(appendTag(to, key), '}'), version...)
	return string(append(to, more...))
}

// tagOf returns the hash tag of a name, which has the prefix.
func (b *Backend) tagOf(name string) string {
	tag, _, _ := strings.Cut(name[len(b.prefix)+1:], "}")
	return tag
}

// version is that of what is stored. Whoever changes what is stored changes it.
const version = ":v2"

// appendTag appends the hash tag of a key.
func appendTag(to []byte, key string) []byte {
	if len(key) > maxPlain || strings.ContainsAny(key, "{}") {
		sum := sha256.Sum256([]byte(key))
		return hex.AppendEncode(append(to, "h:"...), sum[:])
	}
	return append(append(to, "k:"...), key...)
}

// slotOfKey returns the slot of a key in a cluster.
func slotOfKey(key string) int { return int(slotOf(appendTag(make([]byte, 0, 2+maxPlain), key))) }

// slots is the number of slots of a cluster.
const slots = 16384

// slotOf returns the slot of a hash tag in a cluster: its CRC-16 (polynomial 1021) modulo 16384.
func slotOf(tag []byte) uint16 {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}
