package fixedwindow

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
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
//
// where named is the name of the limit, with its length, and the key:
//
//	<length>:<name>:<key>
//
// and hash is its SHA-256 in base64, with a length of 0 if there is no name. No scale or length contains
// a colon, so two windows never share a name.

// form is what a name has of a key and the name of its limit.
type form uint8

const (
	plain  form = iota // the key
	named              // both
	hashed             // the hash of both
)

// marks are those of the forms.
const marks = ":+#"

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
	if err != nil || n < 1 || strconv.Itoa(n) != string(length) || len(part) > maxPlain || len(rest) <= n ||
		rest[n] != ':' {
		return "", "", false
	}
	return string(rest[:n]), string(rest[n+1:]), true
}

// slotNames returns the names of both slots of a key and the name of its limit.
func slotNames(b *slot.Bands, key, limit string) [2][]byte {
	part, f := partOf(key, limit)
	name := append([]byte(b.Tag(slot.A)), marks[f])
	return bothSlots(append(append(append(name, b.Scale.String()...), ':'), part...))
}

// bothSlots returns the names of both slots that the name of a slot belongs to.
func bothSlots(name []byte) [2][]byte {
	a, b := bytes.Clone(name), bytes.Clone(name)
	a[2], b[2] = 'A', 'B'
	return [2][]byte{a, b}
}

// Name is what the name of a record says.
type Name struct {
	Key       string // or the hash of the key and the name of the limit
	LimitName string // the name of the limit; empty if Hashed
	Hashed    bool
	Scale     time.Duration
	Slot      slot.ID
	tag       string
}

// Limit returns what a name says of the limit: neither its Max, nor its name if that is hashed.
func (n Name) Limit() window.Limit {
	return window.Limit{Name: n.LimitName, Scale: n.Scale, Algorithm: window.FixedWindow}
}

// ParseName returns what the name of a record says. It returns false if it is not the name of a
// window's record.
func ParseName(name []byte) (n Name, ok bool) {
	if len(name) < 4 || name[0] != 'w' || name[2] != 'A' && name[2] != 'B' {
		return n, false
	}
	mark := strings.IndexByte(marks, name[3])
	scale, rest, ok := bytes.Cut(name[4:], []byte(":"))
	if mark < 0 || !ok {
		return n, false
	}
	var err error
	if n.Scale, err = time.ParseDuration(string(scale)); err != nil || n.Scale <= 0 || n.Scale.String() != string(scale) {
		return n, false
	}
	n.Slot, n.tag = slot.ID(name[2]-'A'), string(name[:3])
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

// bands returns the bands of the window, or false if clients that keep windows otherwise have made the record.
func (n Name) bands(largest uint64) (b slot.Bands, ok bool) {
	b, ok = slot.BandsFor(n.Scale, largest)
	return b, ok && n.tag == b.Tag(n.Slot)
}

// Window returns what the record of the name, with its quota and what remains of its TTL, says about its
// window at a time of the server. Largest is the largest value of the server. The Window is zero if it is
// not active. Window returns false if clients that keep windows otherwise have made the record.
func (n Name) Window(largest, quota uint64, ttl time.Duration, now time.Time) (w window.Window, ok bool) {
	bands, ok := n.bands(largest)
	if !ok {
		return w, false
	}
	if bands.State(bands.Observe(quota, uint64(ttl/bands.Unit))) == slot.Live {
		left := ttl - time.Duration(bands.Margin)*bands.Unit
		w = window.Window{Count: largest - quota, ExpiresAt: now.Add(left), Left: left}
	}
	return w, true
}

// IsOf reports whether the name is of a record of a key and limit.
func (n Name) IsOf(key string, l window.Limit) bool {
	if n.Scale != l.Scale || l.Algorithm != window.FixedWindow {
		return false
	}
	if part, f := partOf(key, l.Name); f == hashed {
		return n.Hashed && n.Key == part
	}
	return !n.Hashed && n.Key == key && n.LimitName == l.Name
}
