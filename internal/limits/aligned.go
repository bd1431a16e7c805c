package limits

import "time"

// zeroUnix is the zero time.Time in seconds since 1970.
const zeroUnix = -62135596800

// AlignedStart returns when the aligned window of now starts: at a multiple of the scale since 1970.
func AlignedStart(now time.Time, scale time.Duration) time.Time {
	// Truncate counts from the zero time, so now is shifted by the difference between that
	// and 1970. Unlike UnixNano, this works in any year.
	shifted := time.Unix(now.Unix()+zeroUnix, int64(now.Nanosecond()))
	return now.Add(shifted.Truncate(scale).Sub(shifted))
}
