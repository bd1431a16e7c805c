package rediswindow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// The name of a hash has a tag, which decides on its slot in a cluster, and a node has slots.

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

// topology has the node of each slot of a cluster.
type topology [slots]*node

// The slots of a cluster are asked for again after topologyAge, in the background. If they have moved by then, calls
// still reach them: the client knows better. They only share requests, and the circuit, of another node.
const (
	topologyAge     = 2 * time.Second
	topologyTimeout = time.Second
)

// nodeOf returns the node of the hash with a name. Nodes that are not known yet are one. The error says that nothing
// can be sent.
func (b *Backend) nodeOf(name string) (*node, error) {
	cluster, err := b.cluster()
	if err != nil {
		return nil, err
	}
	if !cluster {
		return b.single, nil
	}
	at := b.askAt.Load()
	if time.Now().UnixNano() >= at && b.askAt.CompareAndSwap(at, math.MaxInt64) { // so that nobody else asks meanwhile
		go b.askForSlots(context.Background())
	}
	return b.nodeOfSlot(int(slotOf([]byte(b.tagOf(name))))), nil
}

// nodeOfSlot returns the node of a slot, as far as it is known.
func (b *Backend) nodeOfSlot(slot int) *node {
	if known := b.topology.Load(); known != nil && known[slot] != nil {
		return known[slot]
	}
	return b.single
}

// Part returns the address of the node that keeps a key, or "" if there is only one, or it is not known. It is for
// package throttr, which has a circuit breaker for each.
func (b *Backend) Part(key string) string {
	if cluster, err := b.client.Cluster(); err != nil || !cluster {
		return ""
	}
	return b.nodeOfSlot(slotOfKey(key)).name
}

// slotsScript returns the slots of a cluster: a line for each range, with the first, the last, and the address of the
// primary. A cluster may tell no host: clients then use the one that they know. The script fails on a server that is
// none of a cluster, although its client is: so it is with go-redis behind a Sentinel, if it reads of replicas.
var slotsScript = newScript(`local lines = {}
for i, range in ipairs(redis.call('CLUSTER', 'SLOTS')) do
  lines[i] = string.format('%.0f %.0f %s:%.0f', range[1], range[2], range[3][1] or '', range[3][2])
end
return table.concat(lines, '\n')`)

// askForSlots asks a server which node has which slots, and then others, as that one may hang. The next call after
// topologyAge does so again.
func (b *Backend) askForSlots(ctx context.Context) {
	defer func() { b.askAt.Store(time.Now().Add(topologyAge).UnixNano()) }()
	for range 4 {
		attempt, cancel := context.WithTimeout(ctx, topologyTimeout)
		text, err := b.evalAlone(attempt, slotsScript, []string{b.keyOfSlot(rand.IntN(slots))})
		cancel()
		if err == nil {
			b.learn(text)
			return
		}
	}
}

// slotTags returns a hash tag of each slot of a cluster.
var slotTags = sync.OnceValue(func() []string {
	tags := make([]string, slots)
	for i, missing := 0, slots; missing > 0; i++ {
		tag := "b:" + strconv.Itoa(i)
		if slot := slotOf([]byte(tag)); tags[slot] == "" {
			tags[slot] = tag
			missing--
		}
	}
	return tags
})

// keyOfSlot returns a key of Redis in a slot of a cluster that no backend uses.
func (b *Backend) keyOfSlot(slot int) string {
	return b.prefix + "{" + slotTags()[slot] + "}" + version
}

// learn reads what slotsScript returns. Nodes that were known before stay what they are.
func (b *Backend) learn(text string) {
	var known topology
	for line := range strings.Lines(text) {
		var from, to int
		var name string
		if _, err := fmt.Sscan(line, &from, &to, &name); err != nil || from < 0 || to >= slots {
			return // this is no answer
		}
		n, _ := b.nodes.LoadOrStore(name, b.newNode(name))
		for slot := from; slot <= to; slot++ {
			known[slot] = n.(*node)
		}
	}
	b.topology.Store(&known)
}

// cluster reports whether the client is one of a cluster. The error says that nothing can be sent.
func (b *Backend) cluster() (bool, error) {
	if b.closed.Load() {
		return false, window.ErrClosed
	}
	return b.client.Cluster()
}
