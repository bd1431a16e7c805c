package codec_test

import (
	"iter"
	"strings"

	"github.com/throttr-go/throttr/codec"
)

var connID = codec.ConnID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// numbers returns the bytes of n 64-bit numbers, counting up from first.
func numbers(first, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteByte("0123456789abcdef"[(first+i)>>4])
		b.WriteByte("0123456789abcdef"[(first+i)&15])
		b.WriteString("00000000000000 ")
	}
	return b.String()
}

// somebody is a connection whose numbers count up from 1.
var somebody = codec.ConnectionInfo{
	ID: connID, Type: codec.AgentConnection, Transport: codec.Unix, IPVersion: 6, IP: "::1", Port: 12345,
	Connected: 1, ReadBytes: 2, WriteBytes: 3, PublishedBytes: 4, ReceivedBytes: 5, AllocatedBytes: 6, ConsumedBytes: 7,
	Requests: codec.RequestCounts{
		Insert: 8, Set: 9, Query: 10, Get: 11, Update: 12, Purge: 13, List: 14, Info: 15, Stat: 16, Stats: 17,
		Publish: 18, Subscribe: 19, Unsubscribe: 20, Connections: 21, Connection: 22, Channels: 23, Channel: 24, WhoAmI: 25,
	},
}

var somebodysBytes = "000102030405060708090a0b0c0d0e0f 01 01 06 3a3a3100000000000000000000000000 3930 " + numbers(1, 25)

func count(n uint64) codec.Count { return codec.Count{Total: n, PerMinute: n + 1} }

// goldenResponses are the messages about the server itself.
func goldenResponses() []golden {
	k, long := []byte("key"), []byte("longer")
	one := "0100000000000000"
	two := "0200000000000000"
	return []golden{
		{"PUBLISH", 1, codec.Publish[uint8]{Channel: k, Payload: []byte("hello")}, "13 03 05 6b6579 68656c6c6f"},
		{"PUBLISH", 2, codec.Publish[uint16]{Channel: k, Payload: []byte("hello")}, "13 03 0500 6b6579 68656c6c6f"},
		{"PUBLISH", 4, codec.Publish[uint32]{Channel: k, Payload: []byte("hello")}, "13 03 05000000 6b6579 68656c6c6f"},
		{"PUBLISH", 8, codec.Publish[uint64]{Channel: k, Payload: []byte("hello")}, "13 03 0500000000000000 6b6579 68656c6c6f"},
		{"PUBLISH of nothing", 2, codec.Publish[uint16]{Channel: []byte{}, Payload: []byte{}}, "13 00 0000"},

		{"LIST response, empty", 2, codec.ListResponse[uint16]{}, "01 0000000000000000"},
		{"LIST response", 1, codec.ListResponse[uint8]{Fragments: [][]codec.ListEntry[uint8]{{{Key: k, Buffer: true, Unit: codec.Hours, Expires: 5, Bytes: 9}}}},
			"01" + one + one + one + "03 01 06 0500000000000000 09 6b6579"},
		{"LIST response", 2, codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{
			{{Key: k, Unit: codec.Hours, Expires: 5, Bytes: 2}, {Key: long, Buffer: true, Unit: codec.Seconds, Expires: 6, Bytes: 0x102}},
			{{Key: []byte{}, Unit: 9, Expires: 7, Bytes: 2}},
		}}, "01" + two +
			one + two + "03 00 06 0500000000000000 0200" + "06 01 04 0600000000000000 0201" + "6b6579 6c6f6e676572" +
			two + one + "00 00 09 0700000000000000 0200"},
		{"LIST response", 4, codec.ListResponse[uint32]{Fragments: [][]codec.ListEntry[uint32]{{{Key: k, Unit: codec.Hours, Expires: 5, Bytes: 4}}}},
			"01" + one + one + one + "03 00 06 0500000000000000 04000000 6b6579"},
		{"LIST response", 8, codec.ListResponse[uint64]{Fragments: [][]codec.ListEntry[uint64]{{{Key: k, Unit: codec.Hours, Expires: 5, Bytes: 8}}}},
			"01" + one + one + one + "03 00 06 0500000000000000 0800000000000000 6b6579"},

		{"STATS response, empty", 2, codec.StatsResponse{}, "01 0000000000000000"},
		{"STATS response", 2, codec.StatsResponse{Fragments: [][]codec.StatsEntry{
			{{Key: long, Usage: codec.Usage{ReadsPerMinute: 1, WritesPerMinute: 2, Reads: 3, Writes: 4}}, {Key: []byte{}}},
			{{Key: k}},
		}}, "01" + two + one + two + "06" + numbers(1, 4) + "00" + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + "6c6f6e676572" +
			two + one + "03" + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + "6b6579"},
		{"STAT response", 2, codec.StatResponse{Found: true, Usage: codec.Usage{ReadsPerMinute: 1, WritesPerMinute: 2, Reads: 3, Writes: 4}}, "01" + numbers(1, 4)},
		{"STAT response, not found", 2, codec.StatResponse{}, "00"},

		{"CHANNELS response", 2, codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{
			{{Name: []byte("*"), ReadBytes: 1, WriteBytes: 2, Connections: 3}, {Name: k, ReadBytes: 4, WriteBytes: 5, Connections: 6}},
		}}, "01" + one + one + two + "01" + numbers(1, 3) + "03" + numbers(4, 3) + "2a 6b6579"},
		{"CHANNEL response", 2, codec.ChannelResponse{Found: true, Subscribers: []codec.Subscriber{
			{ID: connID, Since: 1, ReadBytes: 2, WriteBytes: 3}, {Since: 4, ReadBytes: 5, WriteBytes: 6},
		}}, "01" + two + "000102030405060708090a0b0c0d0e0f" + numbers(1, 3) + "00000000000000000000000000000000" + numbers(4, 3)},
		{"CHANNEL response of no subscribers", 2, codec.ChannelResponse{Found: true, Subscribers: []codec.Subscriber{}}, "01 0000000000000000"},
		{"CHANNEL response, not found", 2, codec.ChannelResponse{}, "00"},

		{"CONNECTIONS response", 2, codec.ConnectionsResponse{Fragments: [][]codec.ConnectionInfo{{somebody, {}}, {somebody}}},
			"01" + two + one + two + somebodysBytes + strings.Repeat("00", 237) + two + one + somebodysBytes},
		{"CONNECTION response", 2, codec.ConnectionResponse{Found: true, Connection: somebody}, "01" + somebodysBytes},
		{"CONNECTION response, not found", 2, codec.ConnectionResponse{}, "00"},

		{"WHOAMI response", 2, codec.WhoAmIResponse{ID: connID}, "01 000102030405060708090a0b0c0d0e0f"},
		{"INFO response", 2, codec.InfoResponse{
			Timestamp: 1,
			Requests: codec.InfoRequests{
				All: count(2), Insert: count(4), Query: count(6), Update: count(8), Purge: count(10), Get: count(12), Set: count(14),
				List: count(16), Info: count(18), Stats: count(20), Stat: count(22), Subscribe: count(24), Unsubscribe: count(26),
				Publish: count(28), Channel: count(30), Channels: count(32), WhoAmI: count(34), Connection: count(36), Connections: count(38),
			},
			ReadBytes: count(40), WriteBytes: count(42),
			Keys: 44, Counters: 45, Buffers: 46, CounterBytes: 47, BufferBytes: 48,
			Subscriptions: 49, Channels: 50, RunningSince: 51, Connections: 52, Version: "5.0.11",
		}, "01" + numbers(1, 52) + "352e302e3131 00000000000000000000"},
	}
}

func namesOf[E any](entries iter.Seq[E], name func(E) []byte) (all [][]byte) {
	for e := range entries {
		all = append(all, name(e))
	}
	return all
}
