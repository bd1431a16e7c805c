package main

// inflightFaults are the faults in limits on calls in flight that tests see.
var inflightFaults = []fault{
	// The pump of a key.
	{"inflight/pump.go", "end := p.sentAt + termOf(p.lease)", "end := now + termOf(p.lease)", "", "TestModel"},
	{"inflight/pump.go", "return lease - share(lease, driftShare) - share(lease, marginShare)", "return lease + share(lease, 1.0/10)", "", ""},
	{"inflight/pump.go", "p.heldMax = max(p.heldMax, w.max)", "p.heldMax = w.max", "", "TestTheStoreIsTold"},
	{"inflight/pump.go", "max(2*p.pause, minPause)", "minPause", "", "TestThePause"},
	{"inflight/pump.go", "asking: {news: stale", "asking: {news: asking", "", ""},
	{"inflight/pump.go", "	case granted, !wants && w.wait:", "	case granted:", "", "Blocks"},
	{"inflight/pump.go", "p.rules.policy != Refuse && !p.rules.strict {", "!p.rules.strict {", "", "Lost"},
	{"inflight/pump.go", "now-p.sentAt > share(p.lease, stillShare):", "false:", "", "TestModelKeeps"},
	{"inflight/pump.go", "int64(now+share(p.lease, keepShare))", "int64(now)", "", "TestPoliciesKeep"},
	{"inflight/pump.go", "p.sentAt < p.term", "true", "", "TestPoliciesKeep"},
	{"inflight/pump.go", "for i > 0 && p.wants[i-1].max < w.max {", "for false {", "", "Priority"},
	{"inflight/pump.go", "if w.alone && p.rules.strict {\n			continue", "if false {\n			continue", "", "GrantsApart"},
	{"inflight/pumps.go", "now < lane.renewAt", "true", "", "TestAnotherDataSet"},
	{"inflight/pumps.go", "now >= ps.lossEnd", "true", "", "Strict"},
	{"inflight/limiter.go", "err == nil && l.closed.Load()", "false", "", "Peek"},

	// The ledger in memory.
	{"internal/ledger/claim.go", "x.claim.Seq <= known.seq", "x.claim.Seq < 1", "memory", "TestConformance"},
	{"internal/ledger/claim.go", "case held > known && x.claim.Strict && (held > limit || others > limit-held):", "case false:", "inflight", "TestModel"},
	{"internal/ledger/claim.go", "p.Grace = grace", "p.Grace = 0", "inflight", "Strict|Model"},
	{"internal/ledger/claim.go", "c.sum < before ||", "c.sum > before ||", "inflight", "TestARelease"},
	{"internal/ledger/claim.go", "w.end = x.now + x.claim.Lease/lineShare", "w.end = x.now + x.claim.Lease", "inflight", "TestTheLine"},
	{"internal/ledger/claim.go", "first == nil || granted || first.Max", "first == nil || first.Max", "inflight", "TestModelServes"},
	{"internal/ledger/ledger.go", "at = min(at, w.end)", "at = max(at, w.end)", "inflight", "TestTheLine"},
	{"internal/ledger/line.go", "before != nil && before.limit < w.limit", "false", "inflight", "Priority"},
	{"internal/ledger/line.go", "w == nil || w.limit < limit ||", "w == nil ||", "inflight", "Priority"},
	{"internal/ledger/place.go", "o.waiting.Add(-1)\n		return false, nil, wake, window.ErrOverloaded", "return false, nil, wake, window.ErrOverloaded", "inflight", "MaxWaiting"},

	// The same on Redis.
	{"rediswindow/lua/exchange.lua", "if live then expires = ends + lease end", "expires = ends + lease", "redisbackend", "RenewedPlaces"},
	{"rediswindow/lua/exchange.lua", "local live = expires < ends", "local live = expires == 0", "redisbackend", "RenewedPlaces"},
	{"rediswindow/lua/exchange.lua", "max(uptime - 1, 0)", "(uptime + 1)", "redisbackend", "NewPrefix"},
	{"rediswindow/lua/exchange.lua", "commands ~= '' and not string.find(commands, 'cmdstat_flush', 1, true)", "true", "redisbackend", "NewPrefix"},
	{"rediswindow/lua/exchange.lua", "match(record, '^%x*') == identity and birth <= now", "birth <= now", "redisbackend", "StartedAgain"},
	{"rediswindow/lua/exchange.lua", "ARGV[1] == '' and match(replication, 'master_replid2:0+%s')", "ARGV[1] == ''", "redisbackend", "FirstPlaceOf"},
	{"rediswindow/lua/exchange.lua", "strict == 1 and birth + lease > now", "false", "redisbackend", "StartedAgain|Flush"},
	{"rediswindow/lua/exchange.lua", "(sum < before or w[PROCESS] ~= head) and ", "", "redisbackend", "Grace"},
	{"rediswindow/lua/exchange.lua", "sum < before or w[PROCESS] ~= head", "false", "redisbackend", "TestAReleaseWakes"},
	{"rediswindow/lua/exchange.lua", "line[position - 1][MAX] < firstMax", "false", "redisbackend", "Conform"},
	{"rediswindow/lua/exchange.lua", "if ahead and ahead[MAX] >= under then", "if ahead then", "redisbackend", "Conform"},
	{"rediswindow/lua/exchange.lua", "if seq <= last then", "if false then", "redisbackend", "Conform"},
	{"rediswindow/wake.go", "w.wakeAll() // messages may have been lost", "", "", "WhoeverWaits"},
	{file: "internal/ledger/ledger.go", old: "c.sum <= limit-n", new: "c.sum <= limit", tests: "inflight", run: "^TestModelIsNeverOverOrStuck$"},
	{file: "internal/ledger/ledger.go", old: "c.sum <= limit-n", new: "c.sum <= limit", tests: "inflight", run: "^TestModelIsOverOnlyAfterALossOfData$"},
	{file: "rediswindow/lua/exchange.lua", old: "sum + n + reserved <= under", new: "sum + reserved <= under", tests: "redisbackend", run: "^TestPlacesInFlightSurvive$"},
	{file: "rediswindow/lua/exchange.lua", old: "sum + n + reserved <= under", new: "sum + reserved <= under", tests: "redisbackend", run: "^TestPlacesInFlightOfASlotThatMoves$"},
	{file: "rediswindow/lua/exchange.lua", old: "sum + n + reserved <= under", new: "sum + reserved <= under", tests: "redisbackend", run: "^TestPlacesInFlightSurviveAFailover$"},
}
