package main

// calendarFaults are the faults in calendar windows that tests see.
var calendarFaults = []fault{
	{file: "internal/limits/calendar.go", old: "\t\tstart = end // now has", new: "\t\t_ = end // now has", run: "Calendar"},
	{file: "internal/limits/calendar.go", old: "m, d-since+7*n)", new: "m, d-since+8*n)", run: "^TestWindowsOfTheCalendarTileTime$"},
	{file: "internal/limits/calendar.go", old: "min(c.StartDay, last)", new: "c.StartDay+0*last", run: "Vectors"},
	{file: "internal/limits/calendar.go", old: "first = max(change, midnight-after)", new: "first = midnight - after", run: "Vectors"},
	{file: "internal/limits/calendar.go", old: "if first >= change {", new: "if before > after || first >= change {", run: "Vectors"},
	{file: "internal/limits/calendar.go", old: "- c.StartDay + 7) % 7", new: "- c.StartDay + 8) % 7", run: "Vectors"},
	{file: "internal/limits/calendar.go", old: "if l.StartDay == 1 {", new: "if false {", run: "^TestTakesOfOneCount"},
	{file: "internal/limits/zone.go", old: "strings.EqualFold(dir, local)", new: "dir == local && local == \"Local\"", run: "^TestZonesThatDepend"},
	{file: "internal/algorithm/calendar.go", old: "-length <= passed && passed < length", new: "false", run: "Calendar"},
	{file: "internal/algorithm/calendar.go", old: "if r.ID != 0 && passed >= length {", new: "if r.ID != 0 {", run: "Back"},
	{file: "memory/table.go", old: "return r.limit() == limits.Identity(l)", new: "return r.limit() == *l", tests: "memory", run: "^TestConformance$"},
	{file: "memory/call.go", old: "of := limits.Identity(l)", new: "of := l", tests: "memory", run: "^TestConformance$"},
	{file: "internal/waiting/state.go", old: "clocksDiffer = time.Hour", new: "clocksDiffer = 0 * time.Hour", tests: ".", run: "^TestWaitersInADayOf23Hours"},
	{file: "internal/waiting/state.go", old: "l.end.Add(clocksDiffer)", new: "l.end.Add(-clocksDiffer)", tests: ".", run: "^TestWaitersInADayOf23Hours"},
	{file: "decide.go", old: "\t\tl.Algorithm = CalendarWindow\n", new: "\t\tl.Algorithm = r.algorithm\n", run: "Calendar"},
	{file: "rediswindow/lua/windows.lua", old: "(now >= ends or now < ends - scale)", new: "false", tests: "redisbackend", run: "^TestCalendarWindowsAreThose"},
	{file: "rediswindow/lua/windows.lua", old: "what == 'c' and state and more or scale --", new: "scale --", tests: "redisbackend", run: "^TestCalendarWindowsAreThose"},
	{file: "rediswindow/lua/windows.lua", old: "if start and what == 'c' then", new: "if false then", tests: "redisbackend", run: "^TestCalendarWindowsAreThose"},
	{file: "rediswindow/lua/windows.lua", old: "start, more = ends - scale, scale", new: "start, more = now, scale", tests: "redisbackend", run: "^TestCalendarWindowsAreThose"},
	{file: "rediswindow/calendar.go", old: "case q.now != 0:", new: "case false:", tests: "redisbackend", run: "^TestCalendarWindowsAreThose"},
	{file: "rediswindow/calendar.go", old: "return append(to, of.Zone...)", new: "return to", tests: "redisbackend", run: "^TestListReturnsWhatIsCounted$"},
	{file: "lease/backend.go", old: " || l.Calendar != 0 }", new: " }", run: "^TestLimitsWithACalendarPassThrough$"},
	{file: "rediswindow/lua/windows.lua", old: "string.find(some[f], '^[abcflw]')", new: "string.find(some[f], '^[abflw]')", tests: "redisbackend", run: "^TestFieldsOfEnded"},
	{file: "memory/table.go", old: "Calendar: r.unit, Zone: zone", new: "Zone: zone", tests: "memory", run: "^TestAWindowThatIsEnded"},
}
