package admission

import (
	"maps"
	"reflect"
)

// KeyFuncs are the functions by which an adapter finds the keys of requests. F is their type: those of HTTP take an
// *http.Request. Call Check before Request.
type KeyFuncs[F any] struct {
	Key   F            // of Request.Key; nil: Addr
	KeyOf map[string]F // of Request.Keys, by the names of limits
	Addr  F            // of Request.Addr

	// Everyone returns the text of [Everyone]. Remote is another function of addresses than Addr. Keys of the three are
	// stored as they are, also if they are Key or in KeyOf. Functions are told apart by their code: none of them may be
	// inlined.
	Everyone, Remote F

	plain bool           // keys of Key are stored as they are
	keyed map[string]Key // what is known of those of KeyOf
}

// Check sets the default of Key, and returns an error if a function of KeyOf is nil, or if has reports that there can
// be no limit of its name. The error matches [throttr.ErrConfig].
func (k *KeyFuncs[F]) Check(has func(name string) bool) error {
	if reflect.ValueOf(k.Key).IsNil() {
		k.Key = k.Addr
	}
	k.plain = k.known(k.Key).Plain
	k.KeyOf = maps.Clone(k.KeyOf) // the caller may change the map
	k.keyed = make(map[string]Key, len(k.KeyOf))
	for name, f := range k.KeyOf {
		switch {
		case reflect.ValueOf(f).IsNil():
			return invalid("KeyOf has no function of %q", name)
		case name == "" || !has(name):
			return invalid("KeyOf has %q, and no limit has the name", name)
		}
		k.keyed[name] = k.known(f)
	}
	return nil
}

// known returns what is known of the keys of f: that of Everyone needs no request.
func (k *KeyFuncs[F]) known(f F) Key {
	code := func(f F) uintptr { return reflect.ValueOf(f).Pointer() }
	switch code(f) {
	case code(k.Everyone):
		return Everyone
	case code(k.Addr), code(k.Remote):
		return Key{Plain: true}
	}
	return Key{}
}

// Keyed returns the Config.Keyed of these functions.
func (k *KeyFuncs[F]) Keyed() map[string]Key { return k.keyed }

// Request returns the Request of what an adapter was sent, with its keys, or its address. The adapter passes a function
// that calls a KeyFunc with what it was sent.
func (k *KeyFuncs[F]) Request(call func(F) string) Request {
	r := Request{Key: Key{Text: call(k.Key), Plain: k.plain}}
	if r.Key.Text == "" {
		r.Addr = call(k.Addr)
	}
	if len(k.KeyOf) > 0 {
		r.Keys = make(map[string]Key, len(k.KeyOf))
		for name, f := range k.KeyOf {
			r.Keys[name] = Key{Text: call(f), Plain: k.keyed[name].Plain}
		}
	}
	return r
}
