package httplimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/throttr-go/throttr"
)

// Answer responds to a request on which the decision d was made. Next is the handler that the
// middleware wraps. The package has [Serve], [ServeUnlessFull], [Deny], [DenyProblem], [Refuse]
// and [RefuseProblem]. An Answer may call another one.
type Answer func(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler)

// Serve is an [Answer] that serves the request as usual.
func Serve(w http.ResponseWriter, r *http.Request, _ Decision, next http.Handler) {
	w.Header().Del("Retry-After")
	next.ServeHTTP(w, r)
}

// ServeUnlessFull is an [Answer] for Config.OnFailure. It calls [Serve], but [Refuse] if the backend has no
// room for another key (throttr.ErrFull): otherwise clients that can make up keys, such as addresses,
// could fill the backend and would then have no limit.
func ServeUnlessFull(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	if errors.Is(d.Err, throttr.ErrFull) {
		Refuse(w, r, d, next)
		return
	}
	Serve(w, r, d, next)
}

// Deny is an [Answer] that responds with 429 and a line of text. There is no Retry-After if the request
// costs more than a limit can ever grant: waiting does not help. If no limit is exceeded, and a
// throttr.Policy has denied the request because the backend has failed, Deny calls [Refuse].
func Deny(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	if d.Strictest.Degraded && !d.Strictest.known() {
		Refuse(w, r, d, next)
		return
	}
	text := "Too many requests."
	if retry := setRetryAfter(w.Header(), d.Strictest.RetryAfter); retry != "" {
		text += " Try again in " + retry + " s."
	}
	writeText(w, r, http.StatusTooManyRequests, text+"\n")
}

// DenyProblem is [Deny] with a body of application/problem+json (RFC 9457), of the type that
// draft-ietf-httpapi-ratelimit-headers defines:
//
//	{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//	 "title":"Request cannot be satisfied as assigned quota has been exceeded",
//	 "status":429,"violated-policies":["hour"]}
func DenyProblem(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	if d.Strictest.Degraded && !d.Strictest.known() {
		RefuseProblem(w, r, d, next)
		return
	}
	setRetryAfter(w.Header(), d.Strictest.RetryAfter)
	writeProblem(w, r, problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: []string{d.Strictest.Name},
	})
}

// refusedFor is the Retry-After of a refused request.
const refusedFor = 5 * time.Second

// Refuse is an [Answer] that responds with 503 and a line of text. It sets Retry-After to 5 s
// unless the field is set already.
func Refuse(w http.ResponseWriter, r *http.Request, _ Decision, _ http.Handler) {
	retry := setRetryAfter(w.Header(), refusedFor)
	writeText(w, r, http.StatusServiceUnavailable, "Service unavailable. Try again in "+retry+" s.\n")
}

// RefuseProblem is [Refuse] with a body of application/problem+json (RFC 9457).
func RefuseProblem(w http.ResponseWriter, r *http.Request, _ Decision, _ http.Handler) {
	setRetryAfter(w.Header(), refusedFor)
	writeProblem(w, r, problem{
		Type:   "about:blank",
		Title:  http.StatusText(http.StatusServiceUnavailable),
		Status: http.StatusServiceUnavailable,
	})
}

// setRetryAfter sets Retry-After unless it is set already or waiting does not help, and returns its value.
func setRetryAfter(header http.Header, d time.Duration) string {
	if header.Get("Retry-After") == "" && d < throttr.Never {
		header.Set("Retry-After", retryAfter(d))
	}
	return header.Get("Retry-After")
}

// problem holds the members of a problem detail.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

func writeProblem(w http.ResponseWriter, r *http.Request, p problem) {
	body, err := json.Marshal(p)
	if err != nil { // Strings and a number can always be marshaled.
		panic(fmt.Sprintf("httplimit: %v", err))
	}
	write(w, r, p.Status, "application/problem+json", string(body)+"\n")
}

func writeText(w http.ResponseWriter, r *http.Request, status int, body string) {
	write(w, r, status, "text/plain; charset=utf-8", body)
}

// write writes a response that no cache may store, even if outer middleware has allowed caching.
func write(w http.ResponseWriter, r *http.Request, status int, contentType, body string) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		io.WriteString(w, body) // An error means that the client has disconnected.
	}
}
