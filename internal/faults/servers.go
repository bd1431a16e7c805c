package main

// serversFaults are the faults in windows on Throttr servers that tests see.
var serversFaults = []fault{
	{file: "internal/fixedwindow/check.go", old: "if a == window.FixedWindow {", new: "if a <= window.AlignedWindow {", run: "^TestOnlyFixedWindowsAreKept$"},
	{file: "internal/fixedwindow/backend.go", old: "if _, err := b.Check(*l); err != nil {", new: "if _, err := b.Check(window.Limit{Max: l.Max, Scale: l.Scale, Algorithm: window.FixedWindow}); err != nil {", run: "^TestOnlyFixedWindowsAreKept$"},
	{file: "internal/fixedwindow/names.go", old: "name[2] != 'A' && name[2] != 'B'", new: "name[2] != 'A' && name[2] > 'C'", run: "^TestOtherNamesAreNotThoseOfWindows$"},
	{file: "internal/fixedwindow/slots.go", old: "now.id != id || w.Count < n {", new: "now.id == 0 {", run: "^TestAGiveBackToAFixedWindowThatHasChanged$"},
	{file: "internal/slot/bands.go", old: "margin := doom + idle + live", new: "margin := doom + idle", run: "^TestTablesOfBands$"},
	{file: "internal/sweep/sweep.go", old: "if old != 0 && old <= int64(interval) {", new: "if old != 0 {"},
	{file: "internal/sweep/sweep.go", old: "wait := max(min(retryPause, interval), retryDuty*r.listing)", new: "_ = r\n\t\twait := min(retryPause, interval)"},
	{file: "internal/coalesce/coalescer.go", old: "(h.Max < count || h.Increment > h.Max-count)", new: "h.Increment > h.Max-count", run: "^TestRefusedTakesCostNothing$"},
	{file: "internal/coalesce/coalescer.go", old: "p.refreshes < c.refreshes", new: "p.refreshes <= c.refreshes", run: "^TestHitIsNotDeniedByARefreshOlderThanItself$"},
	{file: "internal/coalesce/coalescer.go", old: "c.queue.PushFront(p)", new: "c.queue.Push(p)", run: "^TestHitsThatAreNotCountedAreFirstInTheQueueAgain$"},
	{file: "internal/coalesce/coalescer.go", old: "p.attempts >= maxAttempts:", new: "p.attempts > 1<<40:", run: "^TestHitFailsIfItsWindowIsOverWheneverItIsToBeCounted$"},
	{file: "internal/coalesce/coalescer.go", old: "\tif p.begun {\n\t\treturn\n\t}\n", new: "", run: "^TestCanceledHitInFlightHasNoPlaceInTheQueue$"},
	{file: "internal/coalesce/coalescer.go", old: "c.uncertain = c.uncertain || uncertain", new: "_ = uncertain", run: "^TestHeldCoalescerCountsNothingElse$"},
	{file: "internal/fixedwindow/slots.go", old: "switch _, _, err = s.act(ctx, c, a, n); err {", new: "switch _, _, err = s.act(ctx, c, a, 2*n); err {", tests: "internal/systemtest/limiter", run: "^TestGiveBacksThatAreCutOff$"},
	{file: "internal/coalesce/coalescer.go", old: "w.Count -= min(w.Count, c.sum.Sum)", new: "w.Count -= min(w.Count, 2*c.sum.Sum)", tests: "internal/systemtest/limiter", run: "^TestFloodNeverExceedsTheLimit$"},
	{file: "internal/coalesce/coalescer.go", old: "w.Count -= min(w.Count, c.sum.Sum)", new: "w.Count -= min(w.Count, 2*c.sum.Sum)", tests: "internal/systemtest/limiter", run: "^TestManyClientsDoWhatTheModelAllows$"},
	{file: "internal/coalesce/coalescer.go", old: "w.Count -= min(w.Count, c.sum.Sum)", new: "w.Count -= min(w.Count, 2*c.sum.Sum)", tests: "internal/systemtest/limiter", run: "^TestWindowsOnServersFarAway$"},
	{file: "internal/fixedwindow/names.go", old: "sha256.Sum256([]byte(part))", new: "sha256.Sum256([]byte(part[:min(len(part), 100)]))", tests: "fuzz", run: "^FuzzKeys$"},
	{file: "internal/coalesce/coalescer.go", old: "w.Count -= min(w.Count, c.sum.Sum)", new: "w.Count -= min(w.Count, 2*c.sum.Sum)", tests: "internal/systemtest/limiter", run: "^TestServerBackendConforms$"},
	{file: "internal/fixedwindow/take.go", old: "\tslices.SortFunc(all, func(x, y take[T]) int {", new: "\tslices.SortFunc(all[:1], func(x, y take[T]) int {", tests: "internal/systemtest/limiter", run: "^TestClientsDoNotRefuseEachOther$"},
	{file: "internal/sweep/clean.go", old: "targets = append(targets, d.Target)", new: "_ = d.Target", tests: "internal/systemtest/survival", run: "^TestServerSurvivesProcessesThatAreKilledAndRestarted$"},
}
