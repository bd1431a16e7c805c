package main

// leasesFaults are the faults in leases that tests see.
var leasesFaults = []fault{
	{file: "lease/backend.go", old: "min(cmp.Or(o.age, DefaultAge), maxAge)", new: "cmp.Or(o.age, DefaultAge)", run: "^TestOptionsOfAnySize$"},
	{file: "lease/decide.go", old: "share = 8", new: "share = 2"},
	{file: "lease/entry.go", old: "\te.known = 0\n\te.closed", new: "\te.closed", run: "^TestAResetForgetsTheCount$"},
	{file: "lease/entry.go", old: "\tif e.closed {\n\t\te.mu.Unlock()\n\t\treturn w, toBackend, nil\n\t}\n", new: "", run: "^TestAnEntryThatIsClosedTakesNothing$"},
	{file: "lease/entry.go", old: "nb.size > most {", new: "false {", run: "^TestABlockHasNoPlacesForCallersThatHaveLeft$"},
	{file: "lease/entry.go", old: "\te.waiting -= n\n", new: "", run: "^TestABlockHasAtMostAnEighthOfWhatIsLeft$"},
	{file: "lease/entry.go", old: "\t\te.expire(tried, n)\n", new: "", run: "Lost|Lose"},
	{file: "lease/entry.go", old: "case e.closed || t.drops != e.drops:", new: "case e.closed:", run: "^TestAResetDropsABlockThatIsOnItsWay$"},
	{file: "lease/entry.go", old: "\t\t\tt.need = 0\n", new: "", run: "^TestWhatACallerDoesNotWaitForIsGivenBack$"},
	{file: "lease/table.go", old: "now-c.since >= age", new: "false", run: "^TestAKeyIsHotAfterSomeHitsWithinTheAge$"},
	{file: "lease/table.go", old: " || t.closed.Load()", new: "", run: "^TestEntriesAreFoundUntilTheyAreRemoved$"},
	{file: "lease/decide.go", old: "return sent + left - left/drift - precision", new: "return sent + left + left/8", run: "^TestModelNeverExceedsTheLimit$"},
}
