package codec

// Usage is how much a record was used. A server updates all four numbers once a minute: they
// do not include what has happened since.
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

func (u Usage) append(dst []byte) []byte {
	return appendNumbers(dst, u.ReadsPerMinute, u.WritesPerMinute, u.Reads, u.Writes)
}
