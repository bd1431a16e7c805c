package outage

import "github.com/throttr-go/throttr/window"

// Parts is implemented by backends of this module whose store has parts that can be away each for itself, such as
// servers or the nodes of a cluster, and by those that pass calls on to another backend. A [Guard] then has a circuit
// for each part, so that a part that is away does not stop the calls for the keys of the others. A backend without it
// is one part. So is one that wraps such a backend, if it embeds the interface window.Backend; a type that embeds the
// backend itself has its parts.
type Parts interface {
	// Part returns the name of the part that keeps a key now, such as the address of its server, and "" if there is
	// only one part or it is not known. It may change: then the circuit of another part counts. Part is called before
	// every call, by any number of goroutines: it asks nobody, waits for nothing, and should not allocate. Circuits
	// of a name stay for ever, so names are those of servers and not of connections.
	Part(key string) string
}

// PartOf returns the part of the store of a backend that keeps a key, "" if it has no parts.
func PartOf(b window.Backend, key string) string {
	if parts, ok := b.(Parts); ok {
		return parts.Part(key)
	}
	return ""
}
