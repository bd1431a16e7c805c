// Package callerr has the type of errors that name a call.
package callerr

import (
	"fmt"
	"strings"
)

// maxKey is how many characters of a key a text has.
const maxKey = 64

// Error is the error of a call. Its text names the package and the call, and the key if there is one, and has
// that of Err without the prefix of errors of package window.
type Error struct {
	Package, Call, Key string
	Err                error
}

// Error implements error.
func (e *Error) Error() string {
	return e.Package + ": " + Name(e.Call, e.Key) + strings.TrimPrefix(e.Err.Error(), "throttr: ")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Name returns "call key: ", without what is empty.
func Name(call, key string) string {
	switch {
	case call == "":
		return ""
	case key == "":
		return call + ": "
	}
	return fmt.Sprintf("%s %.*q: ", call, maxKey, key)
}
