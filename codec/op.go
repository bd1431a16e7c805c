package codec

import "fmt"

// Op is the first byte of a request, or of an EVENT.
type Op byte

// The op codes that this package knows.
const (
	OpInsert Op = 0x01
	OpQuery  Op = 0x02
	OpUpdate Op = 0x03
	OpPurge  Op = 0x04
	OpSet    Op = 0x05
	OpGet    Op = 0x06

	OpList        Op = 0x07
	OpInfo        Op = 0x08
	OpStat        Op = 0x09
	OpStats       Op = 0x10
	OpSubscribe   Op = 0x11
	OpUnsubscribe Op = 0x12
	OpPublish     Op = 0x13
	OpConnections Op = 0x14
	OpConnection  Op = 0x15
	OpChannels    Op = 0x16
	OpChannel     Op = 0x17
	OpWhoAmI      Op = 0x18

	// OpEvent begins an EVENT, which only servers send.
	OpEvent Op = 0x19
)

// String returns the op's name in the protocol, such as "INSERT", or the number of an
// unknown op.
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
	case OpList:
		return "LIST"
	case OpInfo:
		return "INFO"
	case OpStat:
		return "STAT"
	case OpStats:
		return "STATS"
	case OpSubscribe:
		return "SUBSCRIBE"
	case OpUnsubscribe:
		return "UNSUBSCRIBE"
	case OpPublish:
		return "PUBLISH"
	case OpConnections:
		return "CONNECTIONS"
	case OpConnection:
		return "CONNECTION"
	case OpChannels:
		return "CHANNELS"
	case OpChannel:
		return "CHANNEL"
	case OpWhoAmI:
		return "WHOAMI"
	case OpEvent:
		return "EVENT"
	default:
		return fmt.Sprintf("op 0x%02x", byte(o))
	}
}
