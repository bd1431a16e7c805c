package breaker

import "github.com/throttr-go/throttr/window"

// parts return how many parts the store of a backend has, each with a circuit of its own, and the part of a
// key. A store that can't be away has none. For other types they return no function. They are added by init
// functions only.
var parts []func(window.Backend) (int, func(key string) int)

// AddParts adds the parts of a type of backends. Call it in init.
func AddParts[B window.Backend](of func(B) (int, func(key string) int)) {
	parts = append(parts, func(b window.Backend) (int, func(key string) int) {
		if b, ok := b.(B); ok {
			return of(b)
		}
		return 0, nil
	})
}

// PartsOf returns how many parts the store of a backend has, and the part of a key.
func PartsOf(b window.Backend) (int, func(key string) int) {
	for _, of := range parts {
		if n, part := of(b); part != nil {
			return n, part
		}
	}
	return 1, func(string) int { return 0 }
}
