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
func (o Op) String() string { return name(o, opNames[:], "op") }

var opNames = [...]string{
	OpInsert:      "INSERT",
	OpQuery:       "QUERY",
	OpUpdate:      "UPDATE",
	OpPurge:       "PURGE",
	OpSet:         "SET",
	OpGet:         "GET",
	OpList:        "LIST",
	OpInfo:        "INFO",
	OpStat:        "STAT",
	OpStats:       "STATS",
	OpSubscribe:   "SUBSCRIBE",
	OpUnsubscribe: "UNSUBSCRIBE",
	OpPublish:     "PUBLISH",
	OpConnections: "CONNECTIONS",
	OpConnection:  "CONNECTION",
	OpChannels:    "CHANNELS",
	OpChannel:     "CHANNEL",
	OpWhoAmI:      "WHOAMI",
	OpEvent:       "EVENT",
}

// name returns the name of a byte that has a meaning, or its number if it has none.
func name[V ~byte](v V, names []string, what string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s 0x%02x", what, byte(v))
}
