// Package inside lets packages of this module use more of a value than its type exports: of a backend what a
// RateLimit needs to call it directly, of a RateLimit what package admission needs. Such a view has a type that both
// packages know, or of which the other one knows some methods.
//
// A view belongs to the exact type of a value: a type that embeds a backend may have methods of its own, which must be
// called. AddInner is for those that have only their own Ping and Close.
package inside

// Views return a view of a value of their type, and inner what a value of their type only wraps; or nil. They are added
// by init functions only.
var views, inner []func(any) any

// Add adds a view of a type. Call it in init.
func Add[T any](view func(T) any) { views = append(views, ofType(view)) }

// AddInner says that a type has the views of a value that it wraps. Call it in init.
func AddInner[T any](of func(T) any) { inner = append(inner, ofType(of)) }

func ofType[T any](f func(T) any) func(any) any {
	return func(v any) any {
		if v, ok := v.(T); ok {
			return f(v)
		}
		return nil
	}
}

// Of returns the view of a value that is a V, if there is one.
func Of[V any](v any) (view V, ok bool) {
	for _, f := range views {
		if view, ok = f(v).(V); ok {
			return view, true
		}
	}
	for _, f := range inner {
		if wrapped := f(v); wrapped != nil {
			return Of[V](wrapped)
		}
	}
	return view, false
}
