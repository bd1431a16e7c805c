package postgresbackend

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// id is the primary key of a row: what is stored of a key and limit.
type id struct{ key, limit string }

// idOf returns the id of a key and limit. Of the limit, the algorithm, the scale, and the name are stored. Before the
// name, calendar windows have the unit, the start day, and the zone with a zero byte.
func idOf(key string, l *window.Limit) id {
	to := binary.BigEndian.AppendUint64(append(make([]byte, 0, 64), byte(l.Algorithm)), uint64(l.Scale))
	if l.Calendar != 0 {
		of := limits.Identity(l)
		to = append(to, byte(of.Calendar), of.StartDay)
		to = append(append(to, of.Zone...), 0)
	}
	return id{storedKey(key), string(append(to, l.Name...))}
}

// longestKey is the length of the longest key that is stored as it is. Of a longer one, its beginning and a digest are
// stored, which are one byte longer.
const longestKey = 255

// storedKey returns what is stored of a key.
func storedKey(key string) string {
	if len(key) <= longestKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	digest := base64.RawURLEncoding.EncodeToString(sum[:])
	return key[:longestKey+1-len(digest)] + digest
}

// windowLimit returns the limit of an id, without its Max and Burst.
func windowLimit(stored []byte) (window.Limit, error) {
	if len(stored) < 9 {
		return window.Limit{}, fmt.Errorf("lim has %d bytes", len(stored))
	}
	l := window.Limit{
		Algorithm: window.Algorithm(stored[0]),
		Scale:     time.Duration(binary.BigEndian.Uint64(stored[1:9])),
		Name:      string(stored[9:]),
	}
	if l.Algorithm == window.CalendarWindow && len(l.Name) > 2 {
		l.Calendar = window.Calendar(l.Name[0])
		l.StartDay = l.Name[1]
		l.Zone, l.Name, _ = strings.Cut(l.Name[2:], "\x00")
	}
	return l, limits.Check(&l)
}
