package main

// The tests of package internal/algorithm, and those of a full memory.
const (
	modelRun  = "^TestAlgorithmsAgree|^TestAClock|^TestNothing|^TestABucket|^TestALog|^TestATake"
	sharedRun = "Share|Full|DoNotFit|MaxTimes|AWindowThatIsEnded"
)

// memoryFaults are the faults in package memory, and in the algorithms, that tests see.
var memoryFaults = []fault{
	{file: "internal/algorithm/algorithm.go", old: "count <= by.Holds-n", new: "count <= by.Holds", tests: "memory", run: "^TestConformance$"},
	{file: "memory/access.go", old: "\tx.shard.mu.Lock()\n\tif x.shard.closed {\n\t\tx.shard.mu.Unlock()\n\t\treturn window.ErrClosed\n\t}\n\tx.at = b.clock.now()\n", new: "\tx.at = b.clock.now()\n\tx.shard.mu.Lock()\n\tif x.shard.closed {\n\t\tx.shard.mu.Unlock()\n\t\treturn window.ErrClosed\n\t}\n", run: "^TestACallThatWaitsDoesNotCountInThePast$"},
	{file: "internal/algorithm/algorithm.go", old: "if passed < -r.Scale {\n\t\tr.Start = t.Now\n\t\treturn 0", new: "if passed < -r.Scale {\n\t\tr.Start = t.Now - int64(r.Scale)\n\t\treturn r.Scale", run: modelRun},
	{file: "internal/algorithm/algorithm.go", old: "count <= by.Holds-n", new: "count <= by.Max-n", run: modelRun},
	{file: "internal/algorithm/algorithm.go", old: "\tif t.Sec < 0 {\n\t\trest = int64(scale) - rest\n\t}\n", new: "", run: "^TestClockMay", tests: "memory"},
	{file: "internal/algorithm/algorithm.go", old: "case n > by.Holds || a.refills && by.Max == 0:", new: "case n > by.Holds:", run: modelRun},
	{file: "internal/algorithm/fixed.go", old: "passed >= by.Scale && r.ID != 0", new: "passed > by.Scale && r.ID != 0", run: modelRun},
	{file: "internal/algorithm/fixed.go", old: "|| r.Count == window.Unlimited", new: "|| r.Count > window.Unlimited", tests: "memory", run: "^TestCountThatWasTooLarge"},
	{file: "internal/algorithm/bucket.go", old: "if q*x != d.lo {", new: "if false {", run: modelRun},
	{file: "internal/algorithm/bucket.go", old: "product(uint64(r.ID-id), uint64(r.Scale))", new: "product(0*uint64(id), uint64(r.Scale))", run: modelRun},
	{file: "internal/algorithm/bucket.go", old: "product(2*r.Holds, uint64(r.Scale))", new: "product(r.Holds, uint64(r.Scale))", run: modelRun},
	{file: "internal/algorithm/bucket.go", old: "if by.Max > 0 { // otherwise", new: "if true { // otherwise", run: modelRun},
	{file: "internal/algorithm/sliding.go", old: "uint64(passed) >= 2*uint64(by.Scale)", new: "passed >= 2*by.Scale", run: modelRun},
	{file: "internal/algorithm/sliding.go", old: "More: r.Count, Last: r.ID}", new: "More: r.Count, ID: r.ID}", run: modelRun},
	{file: "internal/algorithm/log.go", old: "at(0).at) >= by.Scale {", new: "at(0).at) > by.Scale {", run: modelRun},
	{file: "internal/algorithm/log.go", old: "h := *g.at(i); h.n > 0 {", new: "h := *g.at(i); true {", run: modelRun},
	{file: "internal/algorithm/log.go", old: "&& g.newest().number == uint32(r.ID)", new: "", run: modelRun},
	{file: "memory/access.go", old: "EncodeToString(sum[:]), true", new: "EncodeToString(sum[:]), false", run: "List"},
	{file: "memory/access.go", old: "if r == nil || r.left(x.at) <= 0 {", new: "if r == nil {", run: sharedRun},
	{file: "memory/access.go", old: "x.record.Record = x.algorithm.Copy(counted, s.series)", new: "x.record.Scale = counted.Scale", run: sharedRun},
	{file: "memory/access.go", old: "if !x.logFits(b) {\n\t\t\tstate.Wait", new: "if false {\n\t\t\tstate.Wait", run: sharedRun},
	{file: "memory/access.go", old: "n -= min(n, x.peek(0).Count)", new: "n -= min(n, 0*x.peek(0).Count)", run: sharedRun},
	{file: "memory/shard.go", old: "if s.shared.len == 0 {\n\t\ts.own.remove(r)", new: "{\n\t\ts.own.remove(r)", run: sharedRun},
	{file: "memory/shard.go", old: "most := sharedLimits * b.sharedKeys", new: "most := 100 * sharedLimits * b.sharedKeys", run: sharedRun},
	{file: "memory/take.go", old: "x.record.Record = x.before", new: "_ = x.before", run: sharedRun},
	{file: "memory/take.go", old: "state.Wait = 0", new: "state.Wait += 0", run: "^TestTakesThatShareACount"},
	{file: "memory/clean.go", old: "case -left < b.keyOlderThan:", new: "case -left <= b.keyOlderThan:", run: "Older|Clean"},
	{file: "memory/table.go", old: "range t.cells[i:end] {", new: "range t.cells[min(i+1, end):end] {", run: "Clean|List"},
	{file: "memory/clock.go", old: "max(-longestStep, min(now.Sub(last), longestStep))", new: "now.Sub(last)", run: "Clock"},
	{file: "memory/table.go", old: "\t\t\tafter := r.next\n\t\t\tf(r)\n\t\t\tr = after\n", new: "\t\t\tf(r)\n\t\t\tr = nil\n", run: "Clean|List"},
	{file: "internal/algorithm/algorithm.go", old: "return min(count+n, window.Unlimited)", new: "return min(count, window.Unlimited)", tests: "memory", run: "^TestExactlyTheLimitIsAllowed$"},
	{file: "memory/memory.go", old: "b.shardMax = b.maxKeys / shards", new: "b.shardMax = 4 * b.maxKeys / shards", run: "^TestMaxKeysBoundsTheWindows$"},
	{file: "memory/table.go", old: "if r.left(at) <= 0 {\n\t\t\tt.remove(r)", new: "{\n\t\t\tt.remove(r)", run: "^TestNewKeysDoNotResetCounts$"},
	{file: "memory/access.go", old: "if len(key) <= longestKey {", new: "if key = string(append([]byte(nil), key...)); len(key) <= longestKey {", run: "^TestHitsOfExistingWindowsDoNotAllocate$"},
	{file: "memory/table.go", old: "if r.left(at) <= 0 {\n\t\t\tt.remove(r)", new: "{\n\t\t\tt.remove(r)", run: "^TestNoKeyGetsMoreThanItsLimitWhenTheMemoryIsFull$"},
	{file: "internal/algorithm/algorithm.go", old: "count <= by.Holds-n", new: "count <= by.Holds", tests: "internal/systemtest/algorithms", run: "^TestLimitsHoldInEveryInterval$"},
	{file: "internal/algorithm/algorithm.go", old: "count <= by.Holds-n", new: "count <= by.Holds", tests: "grpclimit", run: "^TestFloodIsServedUpToTheLimit$"},
	{file: "internal/algorithm/algorithm.go", old: "a.wait(r, t, by.Holds-n), 1)", new: "a.wait(r, t, by.Holds-n)+1, 1)", tests: "internal/systemtest/algorithms", run: "^TestCallerThatWaitsForRetryAfterIsAllowed$"},
	{file: "internal/algorithm/sliding.go", old: "before := r.More - share(r.More, scale-uint64(by.Scale-max(passed, 0)), scale)", new: "before := r.More - 0*scale", tests: "internal/systemtest/algorithms", run: "^TestNothingIsWasted$"},
	{file: "memory/access.go", old: "by.Max = min(by.Max, x.record.Max)", new: "by.Max = max(by.Max, x.record.Max)", run: sharedRun},
	{file: "memory/access.go", old: "\t\t\tx.record.End() // it is over\n", new: "", run: sharedRun},
	{file: "memory/access.go", old: "x.record.left(x.at) // if", new: "_ = x.at // if", run: "^TestDenialsNotice"},
	{file: "memory/clean.go", old: "\ts.shared.sweep(at, len(s.shared.cells))\n", new: "\t_ = at\n", run: sharedRun},
	{file: "memory/memory.go", old: "4*int(b.maxLog))", new: "int(b.maxLog))", run: "^TestALogOfTheLargestLimitFits$"},
	{file: "memory/table.go", old: " || r.digest != k.digest {", new: " {", run: "List"},
	{file: "internal/algorithm/log.go", old: "if g.at(i).n > 0 {", new: "if g.at(i).at != 0 {", tests: "memory", run: "^TestALogOfTheLargestLimitFits$"},
	{file: "internal/algorithm/log.go", old: "now = g.newest().at // the clock has gone back", new: "_ = now", run: modelRun},
	{file: "internal/algorithm/algorithm.go", old: "c.ID = spread(series)", new: "c.ID += 0", run: modelRun},
}
