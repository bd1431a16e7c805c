package codec

// Usage is how much a record was used. A server works out all four figures once a
// minute: what has happened since is in none of them.
type Usage struct {
	ReadsPerMinute  uint64
	WritesPerMinute uint64
	Reads           uint64
	Writes          uint64
}

const usageSize = 4 * 8

func getUsage(b []byte) (u Usage) {
	getNumbers(b, &u.ReadsPerMinute, &u.WritesPerMinute, &u.Reads, &u.Writes)
	return u
}

func (u Usage) put(b []byte) {
	putNumbers(b, u.ReadsPerMinute, u.WritesPerMinute, u.Reads, u.Writes)
}
