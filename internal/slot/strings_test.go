package slot

// String returns "A" or "B".
func (id ID) String() string { return string('A' + rune(id)) }

// String returns the state's name.
func (s State) String() string { return [...]string{"absent", "live", "free", "over", "doomed"}[s] }

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"look", "read", "done", "join", "open", "create", "tidy", "spoil", "retire",
		"refill", "claim", "remove", "end", "return"}[k]
}
