package fixedwindow

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
)

// maxPlain is the most bytes that the names of records have of a key and of the name of its limit. With
// it, all requests of an action fit one packet.
const maxPlain = 80

// hashLength is the length of a hash in the name of a record.
var hashLength = base64.RawURLEncoding.EncodedLen(sha256.Size)

// The names of records are
//
//	w<unit><slot>:<scale>:<key>       a slot of a key and scale, such as wiA:1m0s:user:42
//	w<unit><slot>+<scale>:<named>     the same if the limit has a name, such as wiA+1m0s:5:login:user:42
//	w<unit><slot>#<scale>:<hash>      the same for a key and a name over 80 bytes
//	al:<scale>:<bucket>:<key>         an aligned window
//	an:<scale>:<bucket>:<named>
//	ah:<scale>:<bucket>:<hash>
//	sl: sn: sh:                       an aligned window of sliding ones, which counts no refused hits
//
// where named is the name of the limit, with its length, and the key:
//
//	<length>:<name>:<key>
//
// and hash is its SHA-256 in base64, with a length of 0 if there is no name. No scale, bucket or length
// contains a colon, so two windows never share a name.

// form is what a name has of a key and the name of its limit.
type form uint8

const (
	plain  form = iota // the key
	named              // both
	hashed             // the hash of both
)

// The marks of forms: those of slots, and the second letters of aligned windows.
const (
	slotMarks    = ":+#"
	alignedMarks = "lnh"
)

// partOf returns what names have of a key and the name of its limit.
func partOf(key, limit string) (part string, f form) {
	if limit == "" && len(key) <= maxPlain {
		return key, plain
	}
	part = strconv.Itoa(len(limit)) + ":" + limit + ":" + key
	if limit != "" && len(part) <= maxPlain {
		return part, named
	}
	sum := sha256.Sum256([]byte(part))
	return base64.RawURLEncoding.EncodeToString(sum[:]), hashed
}

// split returns the limit's name and the key of a part that has both.
func split(part []byte) (limit, key string, ok bool) {
	length, rest, _ := bytes.Cut(part, []byte(":"))
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 1 || strconv.Itoa(n) != string(length) || len(part) > maxPlain || len(rest) <= n || rest[n] != ':' {
		return "", "", false
	}
	return string(rest[:n]), string(rest[n+1:]), true
}

// slotNames returns the names of both slots of a key and the name of its limit.
func slotNames(b *slot.Bands, key, limit string) [2][]byte {
	part, f := partOf(key, limit)
	return slotNamesOf(b.Tag(slot.A), b.Scale, part, f)
}

func slotNamesOf(tag string, scale time.Duration, part string, f form) (names [2][]byte) {
	for id := range names {
		name := append([]byte(tag[:2]), 'A'+byte(id), slotMarks[f])
		names[id] = append(append(append(name, scale.String()...), ':'), part...)
	}
	return names
}

// alignedName returns the parts before and after the bucket in the names of the records of a key
// with aligned windows, or sliding ones, and the name of its limit.
func alignedName(t timing, key, limit string) (prefix, suffix string) {
	part, f := partOf(key, limit)
	kind := "a"
	if t.sliding {
		kind = "s"
	}
	return kind + alignedMarks[f:f+1] + ":" + t.scale.String() + ":", ":" + part
}

// Name is what the name of a record says.
type Name struct {
	Key       string // or the hash of the key and the name of the limit
	LimitName string // the name of the limit; empty if Hashed
	Hashed    bool
	Scale     time.Duration
	Aligned   bool
	Sliding   bool    // if Aligned: the window is a part of a sliding one
	Slot      slot.ID // unless Aligned
	Bucket    int64   // if Aligned: the window begins this many scales after 1970 began
	tag       string
}

// ParseName returns what the name of a record says. It returns false if it is not the name of a
// window's record.
func ParseName(name []byte) (n Name, ok bool) {
	if len(name) < 4 {
		return n, false
	}
	var mark int
	rest := name[3:]
	switch {
	case (name[0] == 'a' || name[0] == 's') && name[2] == ':':
		mark = strings.IndexByte(alignedMarks, name[1])
		n.Aligned, n.Sliding = true, name[0] == 's'
	case name[0] == 'w' && (name[2] == 'A' || name[2] == 'B'):
		mark = strings.IndexByte(slotMarks, name[3])
		n.Slot, n.tag, rest = slot.ID(name[2]-'A'), string(name[:3]), name[4:]
	default:
		return n, false
	}
	if mark < 0 {
		return n, false
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
	switch n.Key = string(rest); form(mark) {
	case named:
		n.LimitName, n.Key, ok = split(rest)
	case hashed:
		n.Hashed, ok = true, len(rest) == hashLength
	default:
		ok = len(rest) <= maxPlain
	}
	return n, ok
}

// slotNames returns the names of both slots that the name of a slot belongs to.
func (n Name) slotNames() [2][]byte {
	part, f := n.Key, hashed
	if !n.Hashed {
		part, f = partOf(n.Key, n.LimitName)
	}
	return slotNamesOf(n.tag, n.Scale, part, f)
}
