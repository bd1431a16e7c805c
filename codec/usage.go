package codec

// Usage is how much a record was used. A server updates all four numbers once a minute: they
// do not include what has happened since.
type Usage struct {
	ReadsPerMinute  uint64 // in the last whole minute
	WritesPerMinute uint64 // in the last whole minute
	Reads           uint64 // since the record was made
	Writes          uint64 // since the record was made
}

const usageSize = 4 * 8

func getUsage(b []byte) (u Usage) {
	getNumbers(b, &u.ReadsPerMinute, &u.WritesPerMinute, &u.Reads, &u.Writes)
	return u
}

func (u Usage) append(dst []byte) []byte {
	return appendNumbers(dst, u.ReadsPerMinute, u.WritesPerMinute, u.Reads, u.Writes)
}
