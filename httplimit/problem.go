package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/throttr-go/throttr/admission"
)

// DenyProblem is [Deny] with a body of application/problem+json (RFC 9457), of the type quota-exceeded:
//
//	{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//	 "title":"Request cannot be satisfied as assigned quota has been exceeded",
//	 "status":429,"violated-policies":["hour"]}
func DenyProblem(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	deny(w, r, d, next, "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded")
}

// DenyAbnormalUsage is [DenyProblem] of the type abnormal-usage-detected: for limits that only clients
// exceed which do what they should not, such as guessing passwords.
func DenyAbnormalUsage(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler) {
	deny(w, r, d, next, "abnormal-usage-detected", "Request not satisfied due to detection of abnormal request pattern")
}

// RefuseProblem is [Refuse] with a body of application/problem+json (RFC 9457), of the type
// temporary-reduced-capacity.
func RefuseProblem(w http.ResponseWriter, r *http.Request, d Decision, _ http.Handler) {
	writeProblem(w, r, d, problem{
		Type:     "temporary-reduced-capacity",
		Title:    "Request cannot be satisfied due to temporary server capacity constraints",
		Status:   http.StatusServiceUnavailable,
		Violated: []string{},
	})
}

func deny(w http.ResponseWriter, r *http.Request, d Decision, next http.Handler, kind, title string) {
	if d.Verdict() != admission.Deny {
		RefuseProblem(w, r, d, next)
		return
	}
	p := problem{Type: kind, Title: title, Status: http.StatusTooManyRequests}
	for _, o := range d.Denied() {
		p.Violated = append(p.Violated, o.Name)
	}
	writeProblem(w, r, d, p)
}

// problem holds the members of a problem detail.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

// writeProblem writes a problem of a type that the draft of the header fields defines.
func writeProblem(w http.ResponseWriter, r *http.Request, d Decision, p problem) {
	setRetryAfter(w.Header(), d)
	p.Type = "https://iana.org/assignments/http-problem-types#" + p.Type
	body, err := json.Marshal(p)
	if err != nil { // Strings and a number can always be marshaled.
		panic(fmt.Sprintf("httplimit: %v", err))
	}
	write(w, r, p.Status, "application/problem+json", string(body)+"\n")
}
