package httplimit

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// pause is the limit that holds back the requests of a key. It is a token bucket that gains a token each
// microsecond, and requests need nearly all of the few that it holds, so they never empty it. A pause charges it
// so much that it is full again at the end of the pause.
//
// What is charged makes a bucket lack at most twice its burst, or what it has lacked before, and the time until
// it is full does not depend on the burst. So a pause of d charges twice the burst that fills in d/2: then the
// bucket is full at the end of this pause or of a longer one, however many processes have charged it.
var pause = throttr.Limit{Name: "httplimit.pause", Max: uint64(time.Second / time.Microsecond), Scale: time.Second,
	Burst: 1000, Algorithm: throttr.TokenBucket}

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
	l := pause
	l.Burst = uint64(d/(2*time.Microsecond)) + pause.Burst // a request is granted when the bucket lacks less than its Burst
	_, err := t.limiter.Charge(context.WithoutCancel(ctx), key, l, 2*l.Burst)
	return err == nil
}

// Pause returns for how long a client should send nothing, by a response:
//   - of 429 and 503, the Retry-After field, in seconds or as a date; of 429 without any of these fields, 1 s
//   - what RateLimit (draft-ietf-httpapi-ratelimit-headers-11) says of quotas of which nothing remains: their t,
//     or without one, the w of the policy of that name in RateLimit-Policy
//   - if X-RateLimit-Remaining is 0, X-RateLimit-Reset: seconds, or a time since 1970 in seconds, milliseconds,
//     microseconds or nanoseconds, unless it is more than a year ahead
//
// So a Transport need not know a quota that is lower than its Limits, nor the algorithm of the API: the pause begins
// when nothing remains. RateLimit-Policy alone holds nothing back, because q and w do not say when a window begins, or
// who else uses it.
//
// Dates and times are compared with the Date field, so clocks need not agree. A t is in whole seconds, and rounded
// up. So an API that allows 100 a second, and says so in RateLimit, is used less: a TransportConfig.Pause of your
// own can ignore responses that are not 429 or 503.
func Pause(res *http.Response) time.Duration {
	denied := res.StatusCode == http.StatusTooManyRequests
	if denied || res.StatusCode == http.StatusServiceUnavailable {
		if d, ok := retryAfterOf(res.Header); ok {
			return d
		}
	}
	d := max(remainingOf(res.Header), legacyOf(res.Header))
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
	if d, ok := secondsOf(field); ok {
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

// maxSeconds bounds numbers of header fields.
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

// remainingOf returns the longest time that RateLimit says of a quota of which nothing remains.
func remainingOf(h http.Header) (d time.Duration) {
	policies := itemsOf(h.Values("RateLimit-Policy"))
	for _, i := range itemsOf(h.Values("RateLimit")) {
		if i.params["r"] != "0" {
			continue
		}
		left, ok := secondsOf(i.params["t"])
		for _, p := range policies {
			if !ok && p.name == i.name {
				left, _ = secondsOf(p.params["w"])
			}
		}
		d = max(d, left)
	}
	return d
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

// item is an item of a list of structured fields, with its parameters.
type item struct {
	name   string
	params map[string]string
}

// Quoted strings, the last of which may be open, belong to the parts of a list and of an item.
var (
	listParts = regexp.MustCompile(`(?:[^,"]|"(?:[^"\\]|\\.)*"?)+`)
	itemParts = regexp.MustCompile(`(?:[^;"]|"(?:[^"\\]|\\.)*"?)+`)
)

// itemsOf returns the items of a list of structured fields (RFC 9651); several may have one name. What is
// malformed is left out.
func itemsOf(lines []string) (items []item) {
	for _, text := range listParts.FindAllString(strings.Join(lines, ","), -1) {
		parts := itemParts.FindAllString(text, -1)
		if len(parts) == 0 {
			continue
		}
		i := item{strings.TrimSpace(parts[0]), map[string]string{}}
		for _, p := range parts[1:] {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			i.params[name] = value
		}
		items = append(items, i)
	}
	return items
}
