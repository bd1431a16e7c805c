package admission

import (
	"maps"
	"reflect"
	"slices"
)

// KeyFuncs are the functions by which an adapter finds the keys of requests. F is their type: those of HTTP take an
// *http.Request.
type KeyFuncs[F any] struct {
	key, addr F
	plain     bool // keys of key are stored as they are
	keyOf     map[string]F
	known     map[string]Key // what is known of those of keyOf
}

// NewKeyFuncs returns functions of keys: one of Request.Key, which is addr by default, one of Request.Addr, and those
// of limits by their names. Known returns what is known of the keys of a function, such as [KnownKey], and has whether
// there may be a limit of a name. The error matches [throttr.ErrConfig]: a function is nil, or there is no limit of its
// name.
func NewKeyFuncs[F any](key, addr F, keyOf map[string]F, known func(F) Key,
	has func(name string) bool) (*KeyFuncs[F], error) {
	if reflect.ValueOf(key).IsNil() {
		key = addr
	}
	k := &KeyFuncs[F]{key: key, addr: addr, plain: known(key).Plain, keyOf: maps.Clone(keyOf), known: map[string]Key{}}
	for name, f := range keyOf {
		if reflect.ValueOf(f).IsNil() || name == "" || !has(name) {
			return nil, invalid("KeyOf has no function of %q, or no limit has the name", name)
		}
		k.known[name] = known(f)
	}
	return k, nil
}

// KnownKey returns what is known of the keys of f: that of everyone needs no request, and those of plain functions are
// stored as they are. Functions are told apart by their code. All that one function returns have the same, unless it is
// inlined.
func KnownKey[F any](f, everyone F, plain ...F) Key {
	code := func(f F) uintptr { return reflect.ValueOf(f).Pointer() }
	if code(f) == code(everyone) {
		return Everyone
	}
	return Key{Plain: slices.ContainsFunc(plain, func(p F) bool { return code(p) == code(f) })}
}

// Known returns what is known of the keys of limits: it is Config.Keyed.
func (k *KeyFuncs[F]) Known() map[string]Key { return k.known }

// Request returns a Request with its keys, or its address, whose texts call gets of the functions.
func (k *KeyFuncs[F]) Request(call func(F) string) Request {
	r := Request{Key: Key{Text: call(k.key), Plain: k.plain}}
	if r.Key.Text == "" {
		r.Addr = call(k.addr)
	}
	if len(k.keyOf) > 0 {
		r.Keys = make(map[string]Key, len(k.keyOf))
		for name, f := range k.keyOf {
			r.Keys[name] = Key{Text: call(f), Plain: k.known[name].Plain}
		}
	}
	return r
}
