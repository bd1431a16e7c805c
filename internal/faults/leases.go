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
	{file: "lease/entry.go", old: "\te.waiting -= n\n", new: "\te.waiting -= min(n, 1)\n", run: "^TestABlockHasAtMostAnEighthOfWhatIsLeft$"},
	{file: "lease/table.go", old: "\t\tc.n--\n", new: "", run: "^TestAKeyIsHotAfterSomeHitsWithinTheAge$"},
	{file: "lease/backend.go", old: "l.Scale/4 < traits.Precision", new: "l.Scale < traits.Precision", run: "^TestImpreciseWindowsHaveNoBlocks$"},
	{file: "lease/entry.go", old: "if e.hits == e.tended {", new: "if false {", run: "^TestWhatACallerDoesNotWaitForIsGivenBack$"},
	{file: "lease/backend.go", old: "case b.ctx.Err() != nil:", new: "case false:", run: "^TestASharedTakeThatHangs$"},
	{file: "lease/backend.go", old: "return &outage.TimeoutError{After: takeTimeout, Err: err}", new: "return err", run: "^TestASharedTakeThatHangs$"},
	{file: "lease/backend.go", old: "\tdefer drop()\n", new: "", run: "^TestAResetDropsABlockThatWasTakenMeanwhile$"},
	{file: "lease/entry.go", old: "\t\te.backend.lost.Add(n) // for all that is known\n", new: "", run: "^TestASharedTakeThatHangs$"},
	{file: "lease/entry.go", old: "if err != nil || !w.Refused {", new: "if err == nil && !w.Refused {", run: "^TestASharedTakeThatHangs$"},
}
