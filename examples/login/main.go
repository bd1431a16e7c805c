// Login is a site whose logins can't be guessed: after 3 wrong passwords, an account is locked for a while, and for
// longer each time. The program guesses passwords of its own site, and exits in a few seconds.
//
//	go run ./examples/login
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/lockout"
	"github.com/throttr-go/throttr/memory"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	backend := memory.New() // or throttr.Open, if there are several processes
	defer backend.Close()
	guard, err := lockout.New(throttr.NewRateLimit(backend), lockout.Config{
		Failures: throttr.Limit{Name: "login", Max: 3, Scale: 15 * time.Minute},
		Locks:    []time.Duration{time.Second, 2 * time.Second}, // really: minutes and hours
	})
	if err != nil {
		return err
	}
	site := &site{guard}
	for _, password := range []string{"123456", "secret", "qwerty", "wonderland", "wonderland"} {
		if post(out, site, password) == http.StatusTooManyRequests {
			time.Sleep(1100 * time.Millisecond)
		}
	}
	for _, password := range []string{"letmein", "dragon", "monkey", "wonderland"} {
		post(out, site, password)
	}
	return nil
}

// site is the handler of logins.
type site struct{ guard *lockout.Lockout }

// ServeHTTP responds to an attempt to log in.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("name")
	attempt, ok, err := s.guard.Try(r.Context(), throttr.Key("account", name))
	switch {
	case err != nil: // it is not known whether the account is locked
		http.Error(w, "Try again later.", http.StatusServiceUnavailable)
		return
	case !ok:
		w.Header().Set("Retry-After", fmt.Sprint(admission.Seconds(attempt.RetryAfter()))) // rounded up
		http.Error(w, "Too many attempts.", http.StatusTooManyRequests)
		return
	case !correct(name, r.FormValue("password")):
		if err := attempt.Failed(r.Context()); err != nil {
			log.Print(err)
		}
		http.Error(w, "Wrong name or password.", http.StatusUnauthorized)
		return
	}
	if err := attempt.Succeeded(r.Context()); err != nil {
		log.Print(err) // the attempt stays counted
	}
	fmt.Fprintln(w, "Welcome.")
}

// correct reports whether a password is that of an account. (A real one compares hashes.)
func correct(name, password string) bool { return name == "alice" && password == "wonderland" }

// post tries to log in, prints the response, and returns its status.
func post(out io.Writer, site http.Handler, password string) int {
	form := url.Values{"name": {"alice"}, "password": {password}}
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	site.ServeHTTP(w, r)
	fmt.Fprintf(out, "%-10s %d %s", password, w.Code, w.Body)
	return w.Code
}
