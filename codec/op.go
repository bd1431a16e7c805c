package codec

import "fmt"

// Op is the first byte of a request, or of an EVENT.
type Op byte

// The op codes this package speaks.
const (
	OpInsert Op = 0x01
	OpQuery  Op = 0x02
	OpUpdate Op = 0x03
	OpPurge  Op = 0x04
	OpSet    Op = 0x05
	OpGet    Op = 0x06
	// OpEvent is never a request: it begins what a server pushes unasked.
	OpEvent Op = 0x19
)

// String returns the op's name in the protocol, such as "INSERT", or its number
// for an op that this package does not speak.
func (o Op) String() string {
	switch o {
	case OpInsert:
		return "INSERT"
	case OpQuery:
		return "QUERY"
	case OpUpdate:
		return "UPDATE"
	case OpPurge:
		return "PURGE"
	case OpSet:
		return "SET"
	case OpGet:
		return "GET"
	case OpEvent:
		return "EVENT"
	default:
		return fmt.Sprintf("op 0x%02x", byte(o))
	}
}
