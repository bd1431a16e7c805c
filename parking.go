package throttr

import (
	"fmt"
	"slices"

	"github.com/throttr-go/throttr/internal/parking"
)

// Parking says whether a client parks its servers. On a parked server no record expires:
// records outlive their TTLs, with a TTL of 0, until they are purged. So the expiry of records
// whose clients have died can't lock the server up (H12 in docs/internals/protocol.md).
//
// A server is parked by a record with the empty key, which List shows and which must not be
// removed. Every client keeps a parked server parked, whatever its Config says. There is no
// way back: if records that are past their TTLs began to expire again, they would lock the
// server up. Restart the server instead, with no client that parks it.
type Parking uint8

const (
	// ParkingAutomatic parks a server if a backend of the client (Client.Backend) finds no
	// records on it but those of windows. Others may rely on their expiry.
	ParkingAutomatic = Parking(parking.Automatic)
	// ParkingNever does not park servers.
	ParkingNever = Parking(parking.Never)
	// ParkingAlways parks every server as soon as there is a connection to it, whatever it
	// holds.
	ParkingAlways = Parking(parking.Always)
)

var parkingNames = [...]string{ParkingAutomatic: "automatic", ParkingNever: "never", ParkingAlways: "always"}

// String returns "automatic", "never" or "always", or the number of an unknown value.
func (p Parking) String() string {
	if int(p) < len(parkingNames) {
		return parkingNames[p]
	}
	return fmt.Sprintf("Parking(%d)", uint8(p))
}

// MarshalText returns what String returns. Errors match [ErrConfig].
func (p Parking) MarshalText() ([]byte, error) {
	if int(p) >= len(parkingNames) {
		return nil, fmt.Errorf("%w: %v is not automatic, never or always", ErrConfig, p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText parses what String returns. Errors match [ErrConfig].
func (p *Parking) UnmarshalText(text []byte) error {
	i := slices.Index(parkingNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: parking is %q, want automatic, never or always", ErrConfig, text)
	}
	*p = Parking(i)
	return nil
}
