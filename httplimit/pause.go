package httplimit

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// pauses is the limit that holds back the requests of a key. It is a token bucket of 1000 tokens that gains one each
// microsecond. A request takes one of them, and requests do not come so fast that they empty it. A pause charges it so
// much that it is full again at the end of the pause.
//
// What is charged makes a bucket lack at most twice its burst, or what it has lacked before, and the time until
// it is full does not depend on the burst. So a pause of d charges twice the burst that fills in d/2: then the
// bucket is full at the end of this pause or of a longer one, however many processes have charged it.
var pauses = throttr.Limit{Name: "httplimit.pause", Max: uint64(time.Second / time.Microsecond), Scale: time.Second,
	Burst: 1000, Algorithm: throttr.TokenBucket}

// maxSpread is how much longer than necessary a pause may be, by chance.
const maxSpread = 5 * time.Second

// pause stores the pause that a response demands, if it does, and reports whether its request may be sent again after
// it. Without a pause, it may if the response is a 429, or says so by Retry-After. An error of the store is for the
// observer of the RateLimit.
func (t *Transport) pause(ctx context.Context, res *http.Response, key string) (again bool) {
	d := min(t.cfg.Pause(res), t.cfg.MaxPause)
	if d <= 0 {
		return res.StatusCode == http.StatusTooManyRequests || res.Header.Get("Retry-After") != ""
	}
	d = min(d+rand.N(min(d/10, maxSpread)+1), t.cfg.MaxPause)
	l := pauses
	l.Burst = uint64(d/(2*time.Microsecond)) + pauses.Burst // requests are granted when the bucket lacks less than its own
	stored, err := t.limiter.Charge(context.WithoutCancel(ctx), key, l, 2*l.Burst)
	return err == nil && !stored.Degraded // otherwise, nothing would hold it back
}

// Pause returns for how long a client should send nothing, by a response:
//   - of 429 and 503, the Retry-After field, in seconds or as a date; of 429 without any of these fields, 1 s
//   - if X-RateLimit-Remaining is 0, X-RateLimit-Reset: seconds, or a time since 1970 in seconds, milliseconds,
//     microseconds or nanoseconds, unless it is more than a year ahead
//
// So a Transport need not know a quota that is lower than its Limits, nor the algorithm of the API: the pause begins
// when nothing remains. For an API that says so in other fields, such as RateLimit of a draft, write a
// TransportConfig.Pause that reads them.
//
// Dates and times are compared with the Date field, so clocks need not agree.
func Pause(res *http.Response) time.Duration {
	denied := res.StatusCode == http.StatusTooManyRequests
	if denied || res.StatusCode == http.StatusServiceUnavailable {
		if d, ok := retryAfterOf(res.Header); ok {
			return d
		}
	}
	d := legacyOf(res.Header)
	if denied && d == 0 {
		return time.Second
	}
	return d
}

// retryAfterOf returns what the Retry-After field says.
func retryAfterOf(h http.Header) (time.Duration, bool) {
	field := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := secondsOrTimeOf(field, dateOf(h)); ok {
		return d, true
	}
	if d, ok := secondsOf(field); ok { // more than a year, and no time of about now
		return d, true
	}
	at, err := http.ParseTime(field)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(dateOf(h))), true
}

// dateOf returns the time of a response.
func dateOf(h http.Header) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return time.Now()
}

// maxSeconds bounds numbers of seconds in header fields: 136 years.
const maxSeconds = 1 << 32

// secondsOf returns a number of seconds, which may have a fraction.
func secondsOf(text string) (time.Duration, bool) {
	n, ok := decimal(text)
	return time.Duration(min(n, maxSeconds) * float64(time.Second)), ok
}

// decimal returns a number that is written in digits, with or without a point.
func decimal(text string) (float64, bool) {
	if strings.Trim(text, "0123456789.") != "" {
		return 0, false // such as 1e9 and inf
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// legacyOf returns what the X-RateLimit fields say if nothing remains.
func legacyOf(h http.Header) time.Duration {
	if strings.TrimSpace(h.Get("X-RateLimit-Remaining")) != "0" {
		return 0
	}
	d, _ := secondsOrTimeOf(strings.TrimSpace(h.Get("X-RateLimit-Reset")), dateOf(h))
	return d
}

// farthest is how far ahead of a response the end of a quota may be: services have none that are longer.
const farthest = 366 * 24 * time.Hour

// secondsOrTimeOf returns the time until the end of a quota, by a number that is seconds from now, or a time since
// 1970 in seconds, milliseconds, microseconds or nanoseconds: whichever is no farther from now than the farthest end.
// It returns false if none is.
func secondsOrTimeOf(text string, now time.Time) (time.Duration, bool) {
	n, ok := decimal(text)
	if !ok {
		return 0, false
	}
	if n <= farthest.Seconds() {
		return time.Duration(n * float64(time.Second)), true
	}
	since := float64(now.UnixNano())
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
		if ahead := n*float64(unit) - since; math.Abs(ahead) <= float64(farthest) {
			return max(0, time.Duration(ahead)).Round(time.Microsecond), true
		}
	}
	return 0, false
}
