// Package redisclient says what an error reply of Redis means for a caller, and what of its text may be shown.
package redisclient

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/window"
)

// Error is a reply that is an error. Its text has no argument of the request.
type Error struct {
	text    string
	cause   error
	matches []error
}

// Error returns what may be shown of the reply.
func (e *Error) Error() string { return e.text }

// Unwrap returns the errors of package window that it matches, and the error of the client.
func (e *Error) Unwrap() []error { return append(e.matches[:len(e.matches):len(e.matches)], e.cause) }

// ReplyError returns the error of a reply to a request with the given arguments, of which the text must have none. A
// reply about one key matches no error of package window. All others are about the server, also those that nobody
// knows: they match [window.ErrUnavailable], and also [window.ErrFull] if the server has no memory. An error of the
// client that says that it has no reply is returned as it is, and so is nil.
func ReplyError(err error, args ...string) error {
	for _, other := range []error{window.ErrUnavailable, window.ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, other) {
			return err
		}
	}
	if err == nil {
		return nil
	}
	e := &Error{text: text(err.Error(), args), cause: err}
	switch {
	case aboutKey(err):
	case strings.Contains(err.Error(), "OOM command not allowed"): // before version 7, it is in the error of the script
		e.matches = []error{window.ErrFull, window.ErrUnavailable}
		e.text = window.ErrFull.Error() + ": " + e.text
	default:
		e.matches = []error{window.ErrUnavailable}
		e.text = window.ErrUnavailable.Error() + ": " + e.text
	}
	return e
}

// inScript is the beginning of the error of a line of a script, and not of a command that it has called. The scripts have
// such errors if what is stored under a key is damaged.
var inScript = regexp.MustCompile(`^(ERR .*@user_script: ?\d+: |ERR )?user_script:\d+: `)

// aboutKey reports whether a reply is about one of the keys of the request, and not about the server: another
// request may succeed. If the server does not have what a script needs, all of them fail.
func aboutKey(err error) bool {
	reply := err.Error()
	switch {
	case strings.HasPrefix(reply, "WRONGTYPE "):
		return true
	case strings.HasPrefix(reply, "NOPERM "):
		return strings.Contains(reply, " key")
	}
	return inScript.MatchString(reply) && !strings.Contains(reply, "nonexistent global variable")
}

// Damaged reports whether a reply says that what is stored under a key is not what it should be.
func Damaged(err error) bool {
	var reply *Error
	return errors.As(err, &reply) && !HasCode(err, "NOPERM") && aboutKey(reply.cause)
}

// AboutSome reports whether an error is a reply that some of the keys of a request must not be in it: they are not in one
// slot, or the user may not access all of them. Nothing was executed, and requests on fewer keys may succeed. A reply
// that a script has got, which may have executed something before, names the script.
func AboutSome(err error) bool {
	if !HasCode(err, "NOPERM") {
		return HasCode(err, "CROSSSLOT")
	}
	var reply *Error
	return errors.As(err, &reply) && aboutKey(reply.cause) && !strings.Contains(reply.cause.Error(), "@user_script")
}

// HasCode reports whether an error is a reply that begins with a code.
func HasCode(err error, code string) bool {
	if err == nil { // most replies are none
		return false
	}
	var reply *Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.cause.Error(), code+" ")
}

// Demoted reports whether a reply says that the server is a replica.
func Demoted(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "READONLY ") ||
		strings.Contains(err.Error(), "You can't write against a read only replica"))
}

// quoted is a word in quotes, or the beginning of more. It is an argument unless it can be the name of a command, and
// no argument of the request has it.
var quoted = regexp.MustCompile("\\B['\"`]([a-zA-Z|]*)(['\"`]?)")

// text returns a reply up to what it quotes, unless that is the name of a command. If it has one of the arguments
// without quotes, only its code is returned.
func text(reply string, args []string) string {
	shown := reply
	for _, at := range quoted.FindAllStringSubmatchIndex(reply, -1) {
		word, closed := reply[at[2]:at[3]], at[4] < at[5]
		isArgument := func(arg string) bool { return strings.Contains(strings.ToLower(arg), strings.ToLower(word)) }
		if !closed || slices.ContainsFunc(args, isArgument) {
			shown = reply[:at[0]] + "…"
			break
		}
	}
	if i := strings.Index(shown, ", with args"); i >= 0 {
		shown = shown[:i] + ", …"
	}
	if !slices.ContainsFunc(args, func(arg string) bool { return arg != "" && strings.Contains(shown, arg) }) {
		return shown
	}
	code, _, _ := strings.Cut(reply, " ")
	if code != strings.ToUpper(code) || slices.Contains(args, code) {
		code = "a reply"
	}
	return code + ", whose text has an argument of the request"
}
