package slot

// String returns the state's name.
func (s State) String() string { return [...]string{"absent", "live", "free", "over", "doomed"}[s] }

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"look", "done", "join", "open", "create", "tidy", "spoil", "retire",
		"refill", "claim", "remove", "end", "return"}[k]
}
