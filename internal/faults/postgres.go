package main

// postgresFaults are the faults in the backend of PostgreSQL that tests see.
var postgresFaults = []fault{
	{file: "internal/algorithm/stored.go", old: "\t\tat = h.at\n\t\tnumber", new: "\t\tnumber", run: "^TestRecordsInBinaryFormCountAlike$"},
	{file: "internal/batch/batch.go", old: "b.inFlight < b.options.MaxInFlight {", new: "b.inFlight < MaxInFlight {", run: "^TestOptionsBoundTheRequestsInFlight$"},
	{file: "postgresbackend/call.go", old: "n = min(n, MaxLog-min(MaxLog, p.peek(t, p.n).Count))", new: "n = min(n, MaxLog)", run: "^TestChargesOfALog"},
	{file: "postgresbackend/call.go", old: " || before != p.row.record.Rule && !p.row.record.Empty()", new: " || before != p.row.record.Rule && false", run: "^TestRandomCallsAgreeWithMemory$"},
	{file: "postgresbackend/call.go", old: "\tif len(c.parts) > 1 && c.verb == take && !c.allFit(t) {", new: "\tif false {", run: "^TestConformance$/^fixed"},
	{file: "postgresbackend/call.go", old: "context.WithTimeout(ctx, timeout)", new: "context.WithTimeout(ctx, 3*timeout)", run: "^TestCallsOfAServerThatHangsEnd$"},
	{file: "postgresbackend/errors.go", old: "return hasCode(err, serialization) || ", new: "return ", run: "^TestADefaultOfSerializable$"},
	{file: "postgresbackend/errors.go", old: "case hasCode(err, diskFull):", new: "case false && hasCode(err, diskFull):", run: "^TestAServerWhoseDiskIsFull$"},
	{file: "postgresbackend/request.go", old: "defer context.AfterFunc(b.life, cancel)()", new: "_ = context.AfterFunc", run: "^TestCallsOfAServerThatHangsEnd$"},
	{file: "postgresbackend/list.go", old: "failed = b.after(\"list\", f.key, err)\n\t\t\t\tcontinue", new: "failed = b.after(\"list\", f.key, err)\n\t\t\t\tbreak", run: "^TestARowThatIsNoRecord"},
	{file: "postgresbackend/list.go", old: "if len(page) < listPage {", new: "if true {", run: "^TestList$"},
	{file: "postgresbackend/open.go", old: "\t\t\tquery.Del(name)", new: "", run: "^TestOpen$"},
	{file: "postgresbackend/request.go", old: "r.lost = !versions[r.version]", new: "r.lost = false", run: "^TestProcessesThatTakeOfSeveralKeys$"},
	{file: "postgresbackend/request.go", old: "q.undone = isReply(err)", new: "q.undone = true", run: "^TestConnectionsThatAreCut$"},
	{file: "postgresbackend/request.go", old: "\t\tr.restart(now)\n", new: "\t\t_ = r\n", run: "^TestWindowsEndAlthoughTheClockHasGoneBack$"},
	{file: "postgresbackend/request.go", old: "if hasCode(err, readOnly) {", new: "if false {", run: "^TestAServerThatHasBecomeAReplica$"},
	{file: "postgresbackend/schema.go", old: "LEVEL READ COMMITTED`", new: "LEVEL READ COMMITTED READ WRITE`", run: "^TestAServerThatHasBecomeAReplica$"},
	{file: "postgresbackend/row.go", old: "return key[:longestKey+1-len(digest)] + digest", new: "return key[:longestKey+1-len(digest)] + digest[:0]", run: "^TestConformance$/^fixed"},
	{file: "postgresbackend/row.go", old: "return r.compare(s.id) })", new: "return 0 })", run: "^TestProcessesThatTakeOfSeveralKeys$"},
	{file: "postgresbackend/schema.go", old: "WHERE t.version = excluded.before RETURNING", new: "RETURNING", run: "^TestServerThatStopsAndRestartsUnderLoad$"},
	{file: "postgresbackend/schema.go", old: "set_config('idle_in_transaction_session_timeout', '1000', true)", new: "set_config('idle_in_transaction_session_timeout', '0', true)", run: "^TestAProcessThatStopsBetweenItsRoundTrips$"},
	{file: "postgresbackend/sweep.go", old: "clock_timestamp()) - 60) * 1000000", new: "clock_timestamp()) + 60) * 1000000", run: "^TestRowsAreDeletedWhileKeysReturn$"},
	{file: "postgresbackend/sweep.go", old: "WHERE t.ends <= excluded.ends - 60000000000`", new: "`", run: "^TestRowsAreDeletedWhileKeysReturn$"},
}
