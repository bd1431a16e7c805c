package fixedwindow

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
)

// maxPlainKey is the longest key that is part of the names of its records as it is. With it, all
// requests of an action fit one packet.
const maxPlainKey = 80

// hashLength is the length of a key's hash in the name of a record.
var hashLength = base64.RawURLEncoding.EncodedLen(sha256.Size)

// The names of records are
//
//	w<unit><slot>:<scale>:<key>       a slot of a key and scale, such as wiA:1m0s:user:42
//	w<unit><slot>#<scale>:<hash>      the same for a key over 80 bytes: its SHA-256 in base64
//	al:<scale>:<bucket>:<key>         an aligned window
//	ah:<scale>:<bucket>:<hash>
//
// No scale or bucket contains a colon, so two windows never share a name.
const (
	plainMark  = ':'
	hashedMark = '#'
)

// keyPart returns the key as it is part of names.
func keyPart(key string) (part string, hashed bool) {
	if len(key) <= maxPlainKey {
		return key, false
	}
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:]), true
}

// slotNames returns the names of both slots of a key.
func slotNames(b *slot.Bands, key string) [2][]byte {
	part, hashed := keyPart(key)
	return Name{Key: part, Hashed: hashed, Scale: b.Scale, tag: b.Tag(slot.A)}.slotNames()
}

// alignedName returns the parts before and after the bucket in the names of the records of a key
// with aligned windows.
func alignedName(scale time.Duration, key string) (prefix, suffix string) {
	part, hashed := keyPart(key)
	prefix = "al:"
	if hashed {
		prefix = "ah:"
	}
	return prefix + scale.String() + ":", ":" + part
}

// Name is what the name of a record says.
type Name struct {
	Key     string // or its hash
	Hashed  bool
	Scale   time.Duration
	Aligned bool
	Slot    slot.ID // unless Aligned
	Bucket  int64   // if Aligned: the window begins this many scales after 1970 began
	tag     string
}

// ParseName returns what the name of a record says. It returns false if it is not the name of a
// window's record.
func ParseName(name []byte) (n Name, ok bool) {
	if len(name) < 4 {
		return n, false
	}
	switch {
	case string(name[:3]) == "al:", string(name[:3]) == "ah:":
		n.Aligned, n.Hashed = true, name[1] == 'h'
	case name[0] == 'w' && (name[2] == 'A' || name[2] == 'B') && (name[3] == plainMark || name[3] == hashedMark):
		n.Slot, n.Hashed = slot.ID(name[2]-'A'), name[3] == hashedMark
	default:
		return n, false
	}
	rest := name[3:]
	if !n.Aligned {
		n.tag, rest = string(name[:3]), name[4:]
	}
	scale, rest, ok := bytes.Cut(rest, []byte(":"))
	if !ok {
		return n, false
	}
	var err error
	if n.Scale, err = time.ParseDuration(string(scale)); err != nil || n.Scale <= 0 || n.Scale.String() != string(scale) {
		return n, false
	}
	if n.Aligned {
		var bucket []byte
		if bucket, rest, ok = bytes.Cut(rest, []byte(":")); !ok {
			return n, false
		}
		if n.Bucket, err = strconv.ParseInt(string(bucket), 10, 64); err != nil || strconv.FormatInt(n.Bucket, 10) != string(bucket) {
			return n, false
		}
	}
	n.Key = string(rest)
	if n.Hashed {
		return n, len(rest) == hashLength
	}
	return n, len(rest) <= maxPlainKey
}

// slotNames returns the names of both slots of the key that the name of a slot has.
func (n Name) slotNames() (names [2][]byte) {
	mark := byte(plainMark)
	if n.Hashed {
		mark = hashedMark
	}
	for id := range names {
		name := append([]byte(n.tag[:2]), 'A'+byte(id), mark)
		names[id] = append(append(append(name, n.Scale.String()...), ':'), n.Key...)
	}
	return names
}
