package slot

// Hit returns what a client does that has hits to count and knows no open window. The table in the
// comment of the package has the cases.
func (b *Bands) Hit(h History) Action {
	if w, ok := b.Live(h.Last); ok {
		return b.Join(w.Slot, w.Until)
	}
	s, sent := b.states(h.Last), h.Last.Sent
	switch {
	case s[A] == Absent:
		idle := s[B] == Free || s[B] == Over
		return b.by(Action{Kind: Create, Slot: A, Frees: idle}, sent)
	case s[A] == Doomed:
		return b.remove(h, [2]bool{A: true})
	case s[B] == Absent:
		return b.by(Action{Kind: Create, Slot: B, Frees: true}, sent)
	case s[B] == Doomed:
		return b.remove(h, [2]bool{B: true})
	case s[A] == Free && s[B] == Over:
		return b.open(h, A)
	case s[A] == Over && s[B] == Free:
		return b.open(h, B)
	case s[A] == Over:
		return b.retire(h, A)
	default:
		return b.spoil(h)
	}
}

// open returns the action that opens a slot. If the slot was read after the other one, the two may
// never have been like this at the same time: another client may have opened the other slot in
// between, and so have freed this one (rule 5). Then the slots are looked up in the other order.
func (b *Bands) open(h History, id ID) Action {
	if h.Last.First != id {
		return Action{Kind: Again, Slot: id, At: h.Last.Received}
	}
	return b.by(Action{Kind: Open, Slot: id}, h.Last.Sent)
}

// spoil returns the action for two free slots. Either they were not read at the same time, or all
// hits of the last window have been returned. To open one of them would break rule 5.
func (b *Bands) spoil(h History) Action {
	if !b.stable(h, A) || !b.stable(h, B) {
		return b.again(h, b.Scale, A, B)
	}
	return b.by(Action{Kind: Spoil, Slot: A}, h.Last.Sent)
}

// retire returns the next action towards a doomed slot: wait until the slot is stable, and then
// retire it (rules 7 and 8). The slot must be over.
func (b *Bands) retire(h History, id ID) Action {
	if !b.stable(h, id) {
		return b.again(h, b.Scale, id)
	}
	return b.by(Action{Kind: Retire, Slot: id}, h.Last.Sent)
}
