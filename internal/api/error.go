// Package api has what the packages that programs import do alike: they apply options, name the call and the key in
// errors, return when a ctx ends or a client is slow to close, and say which value size of a server would do.
package api

import (
	"fmt"
	"strings"
)

// maxKey is how many characters of a key a text has.
const maxKey = 64

// CallError is the error of a call. Its text names the package and the call, and the key if there is one, and has
// that of Err without the prefix of errors of package window.
type CallError struct {
	Package, Call, Key string
	Err                error
}

// Error implements error.
func (e *CallError) Error() string {
	return e.Package + ": " + CallText(e.Call, e.Key) + strings.TrimPrefix(e.Err.Error(), "throttr: ")
}

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// CallText returns "call key: ", without what is empty.
func CallText(call, key string) string {
	switch {
	case call == "":
		return ""
	case key == "":
		return call + ": "
	}
	return fmt.Sprintf("%s %.*q: ", call, maxKey, key)
}
