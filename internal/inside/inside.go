// Package inside lets packages of this module use more of a type than it exports, such as package admission of a
// RateLimit. Such a view is a value whose type is not exported, of which the other package knows some methods.
package inside

// views return the view of a value of their type, or nil. They are added by init functions only.
var views []func(any) any

// Add adds the view of a type. Call it in init.
func Add[T any](view func(T) any) {
	views = append(views, func(v any) any {
		if v, ok := v.(T); ok {
			return view(v)
		}
		return nil
	})
}

// Of returns the view of a value as a V, which is an interface. It panics if there is none.
func Of[V any](v any) V {
	for _, view := range views {
		if of := view(v); of != nil {
			return of.(V)
		}
	}
	panic("inside: there is no such view")
}
