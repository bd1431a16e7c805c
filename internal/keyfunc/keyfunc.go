// Package keyfunc says what is known of the functions that return the keys of requests, whatever these come over.
package keyfunc

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// Known returns what is known of the keys of f: that of everyone needs no request, and those of plain functions are stored
// as they are. Functions are told apart by their code. All that one function returns have the same, unless it is inlined.
func Known[F any](f, everyone F, plain ...F) admission.Key {
	code := func(f F) uintptr { return reflect.ValueOf(f).Pointer() }
	if code(f) == code(everyone) {
		return admission.Everyone
	}
	return admission.Key{Plain: slices.ContainsFunc(plain, func(p F) bool { return code(p) == code(f) })}
}

// OfLimits returns what is known of the keys of limits, by their names. The error matches [throttr.ErrConfig]: a function
// is nil, or there is no limit of its name.
func OfLimits[F any](funcs map[string]F, has func(name string) bool, known func(F) admission.Key) (map[string]admission.Key, error) {
	keys := make(map[string]admission.Key, len(funcs))
	for name, f := range funcs {
		if reflect.ValueOf(f).IsNil() || name == "" || !has(name) {
			return nil, fmt.Errorf("%w: KeyOf has no function of %q, or no limit has the name", throttr.ErrConfig, name)
		}
		keys[name] = known(f)
	}
	return keys, nil
}
