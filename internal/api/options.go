package api

import (
	"fmt"
	"time"
)

// Apply applies options. It panics if one is nil, with the function that was given them, such as
// "memory: New".
func Apply[T any, O ~func(*T)](function string, to *T, opts []O) {
	for i, o := range opts {
		if o == nil {
			panic(fmt.Sprintf("%s: option %d is nil", function, i+1))
		}
		o(to)
	}
}

// NotNegative returns the argument of an option, such as "memory: WithMaxKeys". It panics if that is negative.
func NotNegative[T int | time.Duration](option string, v T) T {
	if v < 0 {
		panic(fmt.Sprintf("%s: %v is negative", option, v))
	}
	return v
}

// Name returns the name of a constant, or the other text if it has none.
func Name[T ~uint8](v T, other string, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return other
}
