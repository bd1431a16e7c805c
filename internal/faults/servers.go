package main

// serversFaults are the faults in windows on Throttr servers that tests see.
var serversFaults = []fault{
	{file: "internal/fixedwindow/aligned.go", old: "return a.backend.guardClock.Now().Add(a.timing.useEnd(bucket).Sub(a.backend.now()))", new: "return a.backend.guardClock.Now()"},
	{file: "internal/fixedwindow/names.go", old: "kind = \"s\"", new: "kind = \"a\"", run: "^TestRecordNamesAreAsDocumented$"},
	{file: "internal/fixedwindow/names.go", old: "alignedMarks = \"lnh\"", new: "alignedMarks = \"lln\"", run: "^TestNamesOfWindowsAreUniqueAndParsed$"},
	{file: "internal/fixedwindow/sliding.go", old: "if rest > 0 {\n\t\tweight++\n\t}", new: "_ = rest"},
	{file: "internal/fixedwindow/sliding.go", old: "end, room, before := s.clock.Latest, limit-n, s.slide.before", new: "end, room, before := s.clock.Latest, limit, s.slide.before", tests: "internal/systemtest/limiter", run: "^TestServerBackendConforms$/^uint32$"},
	{file: "internal/fixedwindow/sliding.go", old: "s.final = sent.Sub(a.timing.end(bucket-1)) >= min(a.timing.scale/2, finalAfter)", new: "s.final = true"},
	{file: "internal/fixedwindow/slots.go", old: "now.id != id || w.Count < n {", new: "now.id == 0 {", run: "^TestAGiveBackToAFixedWindowThatHasChanged$"},
	{file: "internal/slot/bands.go", old: "margin := doom + idle + live", new: "margin := doom + idle", run: "^TestTablesOfBands$"},
	{file: "internal/sweep/sweep.go", old: "if old != 0 && old <= int64(interval) {", new: "if old != 0 {"},
	{file: "internal/sweep/sweep.go", old: "wait := max(min(retryPause, interval), retryDuty*r.listing)", new: "_ = r\n\t\twait := min(retryPause, interval)"},
}
