package throttr

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// rendezvous picks the server of a key by rendezvous hashing (Thaler and
// Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996). Every server has a score
// for every key, and a key lives on the server with the highest score. If a server is
// removed, only its own keys get another one.
//
// A score is the 64-bit FNV-1a hash of the server's text, a zero byte and the key, mixed by
// the finalizer of SplitMix64. Scores never change: programs of different versions must
// agree where a key lives.
//
// Its elements are the FNV-1a hash of each server's text and the zero byte. It is safe for concurrent use.
type rendezvous []uint64

// newRendezvous returns a rendezvous of servers. Their order matters only for the indexes that pick returns.
func newRendezvous(servers []string) rendezvous {
	r := make(rendezvous, len(servers))
	for i, s := range servers {
		r[i] = fnv1a(fnv1a(fnvOffset, s), "\x00")
	}
	return r
}

// pick returns the index of key's server. If two servers have the same score, the first
// wins; for different texts this happens once in 2⁶⁴ keys.
func (r rendezvous) pick(key string) int {
	if len(r) == 1 {
		return 0
	}
	best, highest := 0, uint64(0)
	for i, seed := range r {
		if s := score(seed, key); i == 0 || s > highest {
			best, highest = i, s
		}
	}
	return best
}

// score is that of the server with the given seed.
func score(seed uint64, key string) uint64 { return mix(fnv1a(seed, key)) }

// fnv1a continues the hash h over s.
func fnv1a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014). The high bits of FNV-1a
// alone are too regular for scores to be compared.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
