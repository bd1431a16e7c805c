package httplimit

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/textproto"
)

// maxKey is the length in bytes of the longest key that is stored unchanged.
const maxKey = 128

// storedKey returns the key that the backend sees. The character before the last part distinguishes a
// digest from a key that looks like one.
func (m *middleware) storedKey(key string) string {
	if m.PlainKeys && len(key) <= maxKey {
		return "http:k" + key
	}
	return "http:h" + digest(key)
}

// digest returns the SHA-256 of a key, in base64.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// ByHeader returns a KeyFunc whose key is the [HeaderKey] of a header field, or "" if the request
// does not have the field or has an empty one. Check the field first, see the package
// documentation: a client that can invent keys has a limit of its own for each of them.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) string {
		value := r.Header.Get(name)
		if value == "" {
			return ""
		}
		return HeaderKey(name, value)
	}
}

// HeaderKey returns the key of a value of a header field, such as an API key. It consists of the
// name of the field and a digest of the value, from which the value can't be found if it is hard
// to guess. A Decision can be logged with it.
func HeaderKey(name, value string) string {
	return textproto.CanonicalMIMEHeaderKey(name) + ":" + digest(value)
}
