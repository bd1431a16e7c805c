package throttr

// Rendezvous hashing (Thaler and Ravishankar, "A Name-Based Mapping Scheme for
// Rendezvous", 1996): each server scores each key, and the highest score has it.
// A server that goes takes only its own keys along.
//
// The score is FNV-1a, 64 bits, over the server's text, a zero byte and the key,
// mixed by the finalizer of SplitMix64. It is part of the released interface:
// programs of different versions must agree where a key lives.

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// router picks the server of a key.
type router struct {
	seeds []uint64 // FNV-1a of each server's text and the zero byte
}

func newRouter(servers []string) router {
	r := router{seeds: make([]uint64, len(servers))}
	for i, s := range servers {
		r.seeds[i] = fnv1a(fnv1a(fnvOffset, s), "\x00")
	}
	return r
}

// pick returns the index of key's server. On equal scores the first wins, which
// for two different texts happens once in 2⁶⁴ keys.
func (r router) pick(key string) int {
	if len(r.seeds) == 1 {
		return 0
	}
	best, top := 0, uint64(0)
	for i, seed := range r.seeds {
		if score := mix(fnv1a(seed, key)); i == 0 || score > top {
			best, top = i, score
		}
	}
	return best
}

// fnv1a continues the hash h over s.
func fnv1a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014): FNV-1a alone
// is too regular in its high bits for scores to be compared.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
