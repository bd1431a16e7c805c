// Package redisclient says what an error reply of Redis is about, and what of its text may be shown.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/window"
)

// Subject is what an error reply is about. It decides which calls fail, and what is done then.
type Subject int

const (
	Server Subject = iota // the server, so all requests fail: [window.ErrUnavailable]
	Memory                // the server, which has none: also [window.ErrFull]
	Role                  // the server, which is a replica: [window.ErrUnavailable]; there may be another primary
	Slots                 // keys in several slots, behind a proxy: [window.ErrUnavailable]; fewer keys may succeed
	Keys                  // keys of the request that the user may not access: fewer keys may succeed
	Access                // a key that the user may not access, in a script that may have done something before
	Value                 // a key that has something else than it should have
)

// subjects are patterns of replies, of which the first that matches counts, and what they are about. Of Slots and Keys,
// nothing was executed. The error of a command that a script has called names the script.
var subjects = []struct {
	reply *regexp.Regexp
	about Subject
}{
	{regexp.MustCompile(`OOM command not allowed`), Memory}, // before version 7, it is in the error of the script
	{regexp.MustCompile(`^READONLY |You can't write against a read only replica`), Role},
	{regexp.MustCompile(`^CROSSSLOT `), Slots},
	{regexp.MustCompile(`^NOPERM .* key.*@user_script`), Access},
	{regexp.MustCompile(`^NOPERM .* key`), Keys},
	{regexp.MustCompile(`^WRONGTYPE `), Value},
	// The server does not have what the script needs. Other lines of scripts fail because of what is stored.
	{regexp.MustCompile(`nonexistent global variable`), Server},
	{regexp.MustCompile(`^(ERR .*@user_script: ?\d+: |ERR )?user_script:\d+: `), Value},
}

// About returns what a reply is about.
func About(err error) Subject {
	if err == nil {
		return Server
	}
	var e *Error
	if errors.As(err, &e) {
		return e.about
	}
	for _, s := range subjects {
		if s.reply.MatchString(err.Error()) {
			return s.about
		}
	}
	return Server
}

// AboutSome reports whether a reply says that some of the keys of a request must not be in it. Nothing was executed.
func AboutSome(err error) bool {
	return slices.Contains([]Subject{Slots, Keys}, About(err))
}

// Error is a reply that is an error. Its text has no argument of the request.
type Error struct {
	text    string
	about   Subject
	matches []error // those of package window, of which the text begins with the first, and that of the client
}

// Error returns what may be shown of the reply.
func (e *Error) Error() string { return e.text }

// Unwrap returns the errors of package window that it matches, and the error of the client.
func (e *Error) Unwrap() []error { return e.matches }

// ClientError returns an error that a client has returned. Unless it is a reply, it also matches [window.ErrClosed] if
// the client was closed, which is an error of its own, or [window.ErrUnavailable].
func ClientError(err, closed error, reply bool) error {
	switch {
	case err == nil || reply:
		return err
	case errors.Is(err, closed):
		return fmt.Errorf("%w: %w", window.ErrClosed, err)
	}
	return fmt.Errorf("%w: %w", window.ErrUnavailable, err)
}

// ReplyError returns the error of a reply to a request with the given arguments, of which the text must have none. An
// error of the client that says that it has no reply is returned as it is, and so is nil.
func ReplyError(err error, args ...string) error {
	if err == nil {
		return nil
	}
	for _, other := range []error{window.ErrUnavailable, window.ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, other) {
			return err
		}
	}
	e := &Error{text: shown(err.Error(), args), about: About(err), matches: []error{err}}
	switch e.about {
	case Keys, Access, Value:
		return e
	case Memory:
		e.matches = []error{window.ErrFull, window.ErrUnavailable, err}
	default:
		e.matches = []error{window.ErrUnavailable, err}
	}
	e.text = e.matches[0].Error() + ": " + e.text
	return e
}

// quoted is a word in quotes, or the beginning of more. It is an argument unless it can be the name of a command, and
// no argument of the request has it.
var quoted = regexp.MustCompile("\\B['\"`]([a-zA-Z|]*)(['\"`]?)")

// shown returns a reply up to what it quotes, unless that is the name of a command. If it has one of the arguments
// without quotes, only its code is returned.
func shown(reply string, args []string) string {
	text := reply
	for _, at := range quoted.FindAllStringSubmatchIndex(reply, -1) {
		word, closed := reply[at[2]:at[3]], at[4] < at[5]
		isArgument := func(arg string) bool { return strings.Contains(strings.ToLower(arg), strings.ToLower(word)) }
		if !closed || slices.ContainsFunc(args, isArgument) {
			text = reply[:at[0]] + "…"
			break
		}
	}
	if i := strings.Index(text, ", with args"); i >= 0 {
		text = text[:i] + ", …"
	}
	if !slices.ContainsFunc(args, func(arg string) bool { return arg != "" && strings.Contains(text, arg) }) {
		return text
	}
	code, _, _ := strings.Cut(reply, " ")
	if code != strings.ToUpper(code) || slices.Contains(args, code) {
		code = "a reply"
	}
	return code + "; the rest of the reply repeats the request"
}
