package httplimit

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/throttr-go/throttr/admission"
)

// Answer responds to a request on which the decision d was made. Next is the handler that the
// middleware wraps. The package has [Serve], [ServeUnlessFull], [Deny], [DenyProblem],
// [DenyAbnormalUsage], [Refuse] and [RefuseProblem]. An Answer may call another one.
type Answer func(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler)

// Serve is an [Answer] that serves the request as usual.
func Serve(w http.ResponseWriter, r *http.Request, _ Decision, next http.Handler) {
	w.Header().Del("Retry-After")
	next.ServeHTTP(w, r)
}

// ServeUnlessFull is an [Answer] for Config.OnFailure. It calls [Serve], but [Refuse] if the backend has no
// room for another key (throttr.ErrFull): otherwise clients that can make up keys, such as addresses,
// could fill the backend and would then have no limit. It also refuses if the backend was closed.
func ServeUnlessFull(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	if d.Allowed && d.Verdict() == admission.Unavailable {
		Refuse(w, r, d, next)
		return
	}
	Serve(w, r, d, next)
}

// Deny is an [Answer] that responds with 429 and a line of text. There is no Retry-After if the request
// costs more than a limit can ever grant: waiting does not help. If no limit is exceeded, and a
// throttr.Policy has denied the request because the backend has failed, Deny calls [Refuse].
func Deny(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	if d.Verdict() != admission.Deny {
		Refuse(w, r, d, next)
		return
	}
	writeText(w, r, http.StatusTooManyRequests, "Too many requests.", &d)
}

// Refuse is an [Answer] that responds with 503 and a line of text. Like all others that do not serve, it
// sets Retry-After unless the field is set already: to 5 s, if the backend has failed.
func Refuse(w http.ResponseWriter, r *http.Request, d Decision, _ http.Handler) {
	writeText(w, r, http.StatusServiceUnavailable, "Service unavailable.", &d)
}

// DenyProblem is [Deny] with a body of application/problem+json (RFC 9457), of the type quota-exceeded:
//
//	{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//	 "title":"Request cannot be satisfied as assigned quota has been exceeded",
//	 "status":429,"violated-policies":["hour"]}
func DenyProblem(w http.ResponseWriter, r *http.Request, d Decision, _ http.Handler) {
	writeProblem(w, r, &d, "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded")
}

// DenyAbnormalUsage is [DenyProblem] of the type abnormal-usage-detected: for limits that only clients
// exceed which do what they should not, such as guessing passwords.
func DenyAbnormalUsage(w http.ResponseWriter, r *http.Request, d Decision, _ http.Handler) {
	writeProblem(w, r, &d, "abnormal-usage-detected",
		"Request not satisfied due to detection of abnormal request pattern")
}

// RefuseProblem is [Refuse] with a body of application/problem+json (RFC 9457), of the type
// temporary-reduced-capacity.
func RefuseProblem(w http.ResponseWriter, r *http.Request, d Decision, _ http.Handler) {
	writeProblem(w, r, &d, "", "")
}

const plainText = "text/plain; charset=utf-8"

// writeText responds with a line of text, and sets Retry-After.
func writeText(w http.ResponseWriter, r *http.Request, status int, text string, d *Decision) {
	seconds, err := strconv.ParseInt(setRetryAfter(w.Header(), d), 10, 64)
	if err == nil { // otherwise there is no field, or the caller has set it to a date
		text += " Try again in " + admission.WaitText(seconds) + "."
	}
	write(w, r, status, plainText, text+"\n")
}

// writeProblem writes a problem of a type that the draft of the header fields defines. Without a denial, or a kind, it
// is that of a service that is not available.
func writeProblem(w http.ResponseWriter, r *http.Request, d *Decision, kind, title string) {
	setRetryAfter(w.Header(), d)
	status := http.StatusTooManyRequests
	violated := []string{}
	if kind == "" || d.Verdict() != admission.Deny {
		status = http.StatusServiceUnavailable
		kind = "temporary-reduced-capacity"
		title = "Request cannot be satisfied due to temporary server capacity constraints"
	} else {
		for _, o := range d.Denied() {
			violated = append(violated, o.Name)
		}
	}
	body, _ := json.Marshal(struct { // strings and a number can always be marshaled
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies"`
	}{"https://iana.org/assignments/http-problem-types#" + kind, title, status, violated})
	write(w, r, status, "application/problem+json", string(body)+"\n")
}

// setRetryAfter sets Retry-After unless it is set already or waiting does not help, and returns its value.
func setRetryAfter(header http.Header, d *Decision) string {
	if field := d.RetryAfterField(); field != "" && header.Get("Retry-After") == "" {
		header.Set("Retry-After", field)
	}
	return header.Get("Retry-After")
}

// write writes a response that no cache may store, even if outer middleware has allowed caching. What that has said of
// the length is about another body.
func write(w http.ResponseWriter, r *http.Request, status int, contentType, body string) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Del("Content-Length")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		io.WriteString(w, body) // An error means that the client has disconnected.
	}
}
