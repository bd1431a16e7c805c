package main

// faults are the faults that tests see.
var faults = []fault{
	// Windows, servers of keys, queues, pauses.
	{file: "internal/limits/takes.go", old: "m.N = min(m.N+t.N, window.Unlimited+1)", new: "m.N = (m.N + t.N) & window.Unlimited"},
	{file: "internal/limits/aligned.go", old: "return now.Add(shifted.Truncate(scale).Sub(shifted))", new: "_ = shifted\n\treturn now.Truncate(scale)"},
	{file: "internal/valuesize/valuesize.go", old: "(64 - 8*size)", new: "(63 - 8*size + 1) >> 1"},
	{file: "internal/rendezvous/rendezvous.go", old: "h>>27", new: "h>>28", run: "^TestScoresNeverChange$"},
	{file: "internal/rendezvous/rendezvous.go", old: "i == 0 || s > highest", new: "i == 0 || s > highest && i < 4", run: "^TestRemovingAServerMovesOnlyItsOwnKeys$"},
	{file: "internal/fifo/fifo.go", old: "q.ring[q.head] = zero", new: "_ = zero"},
	{file: "internal/backoff/backoff.go", old: "func (b *Backoff) Reset() { b.next = b.min }", new: "func (b *Backoff) Reset() { b.next = b.max }"},
	{file: "internal/backoff/backoff.go", old: "pause - pause/10 + rand.N(pause/5+1)", new: "pause + rand.N(time.Duration(1))"},

	// Connections.
	{file: "internal/pool/shared.go", old: "w.n.Add(1) > w.max", new: "w.n.Add(1) > w.max+1", tests: "internal/systemtest/transport", run: "^TestTooManyCallersThatWaitForAConnectionAreRejected$"},
	{file: "internal/pool/shared.go", old: "if s.attempt != nil {\n\t\treturn\n\t}", new: "", run: "^TestAServerThatComesAndGoesIsTriedOnceAtATime$"},
	{file: "internal/pool/shared.go", old: "s.noGrowth = time.Now().Add(s.pool.o.MaxBackoff)", new: ""},

	{file: "internal/dial/handshake.go", old: "if err != nil && !errors.Is(err, parking.ErrForeign) && !errors.Is(err, parking.ErrNotParked) {", new: "if err != nil {", tests: "internal/systemtest/parking"},

	// Hazards H15 to H27.
	{file: "internal/conn/conn.go", old: "c.queue.failAllQueued(reason)\n\tdefer", new: "c.Fail(reason)\n\tdefer", tests: "internal/systemtest/faults", run: "^TestNoResponseIsLeftUnread$"},
	{file: "internal/dial/handshake.go", old: "timer = time.AfterFunc(closeGrace, func() { h.nc.Close() })", new: "h.nc.Close()", run: "^TestResponsesToAnAbandonedProbeAreRead$"},
	{file: "internal/dial/handshake.go", old: "if h.target.AwaitStartUp != nil {", new: "if h.target.AwaitStartUp != nil && h.events {", tests: "internal/systemtest/faults", run: "^TestAServerThatStartsIsSparedLoad$"},
	{file: "internal/pool/start.go", old: "if parked || !p.mayHaveRestarted.Load() {", new: "if parked || ctx != nil {", tests: "internal/systemtest/faults", run: "^TestAServerThatStartsIsSparedLoad$"},
	{file: "internal/pool/stats.go", old: "if len(*p.shared.conns.Load()) == 0 {", new: "if len(*p.shared.conns.Load()) == 1 {", tests: "internal/systemtest/faults", run: "^TestAServerThatStartsIsSparedLoad$"},
	{file: "internal/backoff/backoff.go", old: "b.Reset()\n\t\tpause = b.min/2 + rand.N(b.min/2+1)", new: "_ = b", run: "^TestPausesDoNotGrowWhileNobodyListens$"},
	{file: "internal/conn/reader.go", old: "cl.MostTTL > 0 && uint64", new: "!response.TTL.Unit.Known() || cl.MostTTL > 0 && uint64", tests: "internal/systemtest/faults", run: "^TestAStrayUnitDoesNoHarm$"},
	{file: "internal/pool/stream.go", old: "return s.decoder(src, true)", new: "return 0, true, nil", run: "^TestAResponseIsReadToItsEndAfterItsCallerHasLeft$"},
	{file: "internal/pool/unshared.go", old: "if op == codec.OpList || op == codec.OpStats {", new: "if op == codec.OpStats {", run: "^TestStreamsWaitForEachOther$"},
	{file: "internal/dial/probe.go", old: "everyConnection = \"*\"", new: "everyConnection = \"?\"", tests: "internal/systemtest/faults", run: "^TestANeighboursEventsPushOutNoResponse$"},
	{file: "internal/pubsub/connection.go", old: "\t\tm.unsubscribe(c)\n", new: "", tests: "internal/pubsub", run: "^TestNoSubscribeForImplicitChannels$"},
	{file: "internal/conn/service.go", old: "s.grown = now >= muchSlower*s.first && now >= slowEnough", new: "s.grown = now >= muchSlower*s.first", run: "^TestServiceTimeThatHasGrownIsReportedOnce$"},
	{file: "mockserver/leak.go", old: "left = max(left, c.turn.Load()-c.failed.Load())", new: "_ = left", run: "^TestResponsesThatAClientLeavesUnreadLeak$"},
	{file: "mockserver/start.go", old: "if c.reads++; c.reads > 1 ||", new: "if c.reads++;", run: "^TestLoadDuringTheStartIsAViolation$"},
	{file: "internal/pubsub/queue.go", old: "q.items.Pop()\n\tq.messages--\n\tq.keepGaps()", new: "q.items.Pop()\n\tq.messages--"},
	{file: "internal/pubsub/queue.go", old: "if q.dropNewest {\n\t\t\treturn true\n\t\t}", new: ""},

	// Frames and the mock server.
	{file: "codec/fragment.go", old: "if index := binary.LittleEndian.Uint64(item); index != f.index {", new: "if index := binary.LittleEndian.Uint64(item); index > f.index {"},
	{file: "codec/fragment.go", old: "d.taken = len(d.part) > 0", new: "d.taken = false"},
	{file: "mockserver/store.go", old: "if r := st.records[string(key)]; r != nil && !r.dead {", new: "if r := st.records[string(key)]; r != nil {", run: "^TestRespondsAsTheRealServerDid$|Expire|Dead"},
	{file: "mockserver/store.go", old: "c.lockUp = lockUp", new: "_ = lockUp", run: "^TestRestartEndsLockUp$"},

	// OpenTelemetry.
	{file: "otelthrottr/attributes.go", old: "c.reset, c.outcome = true, done", new: "c.reset, c.outcome = false, done"},
	{file: "otelthrottr/attributes.go", old: "return \"timeout\"", new: "return \"canceled\""},

	// Callers that wait, sweeps.
	{file: "internal/waiting/state.go", old: "count = max(count, t.Limit-t.N+1)", new: "", tests: "."},
	{file: "internal/waiting/state.go", old: "l.at, l.end, l.count = l.end, l.end.Add(t.Scale), 0", new: "l.at, l.end = l.end, l.end.Add(t.Scale)", tests: "."},
	{file: "internal/waiting/waiting.go", old: "\t\t\tw.behind++\n", new: "", tests: ".", run: "Wait"},
	{file: "take.go", old: "*res = Result{Allowed: true, Limit: limits.Capacity(*l)}", new: "_ = l", run: "Shadow"},
	{file: "reservation.go", old: "t.store == nil || !t.granted || n ==", new: "t.store == nil || n ==", run: "Shadow"},
	{file: "internal/waiting/waiting.go", old: "i == 0 || at.After(late.At)", new: "i == 0", tests: ".", run: "^TestWaitAllFailsAtOnceBecauseOfOneLimit$"},
	{file: "internal/sweep/sweep.go", old: "if old != 0 && old <= int64(interval) {", new: "if old != 0 {"},
	{file: "internal/sweep/sweep.go", old: "wait := max(min(retryPause, interval), retryDuty*r.listing)", new: "_ = r\n\t\twait := min(retryPause, interval)"},

	// Windows on Throttr servers.
	{file: "internal/fixedwindow/aligned.go", old: "return a.backend.guardClock.Now().Add(a.timing.useEnd(bucket).Sub(a.backend.now()))", new: "return a.backend.guardClock.Now()"},
	{file: "internal/fixedwindow/sliding.go", old: "if rest > 0 {\n\t\tweight++\n\t}", new: "_ = rest"},
	{file: "internal/fixedwindow/sliding.go", old: "end, room, before := s.clock.Latest, limit-n, s.slide.before", new: "end, room, before := s.clock.Latest, limit, s.slide.before", tests: "internal/systemtest/limiter", run: "^TestServerBackendConforms$/^uint32$"},
	{file: "internal/fixedwindow/slots.go", old: "now.id != id || w.Count < n {", new: "now.id == 0 {", run: "^TestAGiveBackToAFixedWindowThatHasChanged$"},

	// Memory.
	{file: "memory/bucket.go", old: "nanos, part := refill(n, r.max, scale, true)\n\tafter =", new: "nanos, part := refill(n, r.max, scale, false)\n\tafter =", run: "^TestTokenBucketAgreesWithRationalNumbers$"},
	{file: "memory/sliding.go", old: "if minus(now, w.start) >= e.scale {\n\t\t\treturn false", new: "if minus(now, w.start) > e.scale+e.scale/8 {\n\t\t\treturn false"},
	{file: "memory/log.go", old: "v.wait = e.scale - minus(now, l.nth(&c, int(v.count-(limit-n))))", new: "v.wait = e.scale - minus(now, l.nth(&c, int(v.count-limit)))", run: "^TestConformance$"},

	// Redis.
	{file: "rediswindow/lua/windows.lua", old: "math.ceil((lives - time) / 1000) + grace", new: "math.ceil((lives - time) / 2000) + grace", tests: "redisbackend", run: "^TestHashExpiresAfterItsLastWindow$"},
	{file: "rediswindow/lua/windows.lua", old: "if b and c == x and c ~= 0", new: "if b and c ~= 0", tests: "redisbackend", run: "^TestConformance$/^fixed"},
	{file: "rediswindow/lua/windows.lua", old: "b, c, id = time, id, id + 1", new: "b, c = time, id", tests: "redisbackend", run: "^TestConformance$/^fixed"},
	{file: "rediswindow/lua/windows.lua", old: "if fits < all then all = fits end", new: "all = fits", tests: "rediswindow", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/lua/windows.lua", old: "fits, room = fits + 1, room - n", new: "fits, room = m, room - n", tests: "rediswindow", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/lua/windows.lua", old: "a, b = a + all * n, b + all * np", new: "a, b = a + n, b + np", tests: "rediswindow", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/algorithm.go", old: "later := all - 1 - rank", new: "later := all - 1", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/request.go", old: "e.all = min(e.all, int(bytes[w]))", new: "e.all = int(bytes[w])", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},

	{file: "memory/shared.go", old: "scale: k.scale, kind: k.kind&^long | shared}", new: "scale: k.scale, kind: k.kind&^long&^7 | shared | 1}"},
	{file: "memory/shard.go", old: "b.secret + key", new: "key", run: "^TestHashOfALongKeyIsASecretOfTheBackend$"},
	{file: "memory/access.go", old: "\t\tx.record.set(x.state)\n\t\tx.shard.mayEnd(a, x.state, x.ref)", new: "\t\tx.record.set(x.state)"},
	{file: "memory/take.go", old: "windows[i].Refused, windows[i].RetryAfter = true, v.wait", new: "windows[i].RetryAfter = v.wait", run: "^TestTakesOfKeysThatShareACount$"},
	{file: "rediswindow/script.go", old: "return &memoryError{err}", new: "return err", tests: "redisbackend", run: "^TestServerWithoutMemoryFailsHitsTogether$"},
	{file: "rediswindow/name.go", old: "append(append(appendTag(to, key), '}'), version...)", new: "append(appendTag(to, key), '}')", tests: "redisbackend", run: "^TestVersionsMisreadNothing$"},
	{file: "internal/redisurl/redisurl.go", old: "return u.User == nil && strings.Contains(u.Host, \":\")", new: "return false", tests: "redisbackend", run: "^TestErrorsOfOpenHaveNoPasswordWithoutAHost$"},
	{file: "internal/conn/conn.go", old: "partial := c.reader.partial()", new: "partial := false"},
	{file: "internal/fixedwindow/sliding.go", old: "s.final = sent.Sub(a.timing.end(bucket-1)) >= min(a.timing.scale/2, finalAfter)", new: "s.final = true"},

	// Leases.
	{file: "lease/decide.go", old: "share = 8", new: "share = 2"},
	{file: "lease/entry.go", old: "case e.closed:\n\t\te.mu.Unlock()\n\t\treturn pass, nil\n", new: "", run: "^TestAnEntryThatIsClosedTakesNothing$"},

	// Limits of somebody else's API, lockouts.
	{file: "httplimit/pause.go", old: "uint64(d/(2*time.Microsecond)) +", new: "uint64(d/time.Microsecond) +", run: "Pause"},
	{file: "httplimit/transport.go", old: "l.Scale += margin", new: "_ = margin", run: "Transport"},
	{file: "httplimit/transport_send.go", old: "s.turn.Cancel(s.ctx)", new: "", run: "^TestTransportTakesTokensAnewOnALateConnection$"},
	{file: "httplimit/transport_send.go", old: "\ts.again.Wait()\n", new: "", run: "^TestTransportWaitsUntilItHasCountedAgain$"},
	{file: "httplimit/transport_send.go", old: "l.Algorithm == throttr.TokenBucket || ", new: "", run: "^TestTransportKeepsToTheLimitInAnyInterval$"},
	{file: "httplimit/transport_send.go", old: " && s.connections < 2", new: "", run: "^TestTransportCountsLateRequestsAgain$"},
	{file: "httplimit/transport_send.go", old: "now.Sub(s.counted) <= s.t.cfg.Margin/2", new: "now.Sub(s.counted) >= 0", run: "Transport"},
	{file: "httplimit/transport_send.go", old: "if !first || s.gone(counted) {", new: "if s.gone(counted) {", run: "Transport"},
	{file: "httplimit/transport_send.go", old: "\t\t\ts.charge(t.exact)\n", new: "", run: "Transport"},
	{file: "httplimit/transport.go", old: "\t\t\tr.Body.Close()\n", new: "", run: "Transport"},
	{file: "lockout/lockout.go", old: "l.locks[0], 1)\n\tif err != nil || !res.Allowed {", new: "l.locks[0], 1)\n\tif err != nil {"},
	{file: "lockout/lockout.go", old: "return l.limiter.Forget(ctx, key, l.failures) // the lock", new: "return nil // the lock"},

	// HTTP.
	{file: "admission/addr.go", old: "if !a.isProxy(client) {\n\t\t\t\treturn client, ok\n\t\t\t}", new: "", run: "^TestSpoofedFieldBeforeChainOfProxiesIsIgnored$"},
	{file: "admission/gate.go", old: "case !d.Allowed:\n\t\td.Done()\n", new: "case !d.Allowed:\n", run: "Place"},
	{file: "admission/gate.go", old: "\tif d.Allowed { // also", new: "\tif true { // also", run: "Place"},
	{file: "httplimit/middleware.go", old: "defer d.Hold.Release()\n\th.respond(w, r, d)", new: "h.respond(w, r, d)\n\td.Done()", run: "Place"},
	{file: "admission/reserve.go", old: "a.settled.CompareAndSwap(false, true)", new: "true", tests: "httplimit", run: "^TestARequestIsRefundedOnce$"},
	{file: "admission/request.go", old: "\t\tx.decision.decision.reserved = true\n", new: "", tests: "httplimit", run: "^TestARequestIsRefundedOnce$"},
	{file: "httplimit/upgrade.go", old: "!u.hijacked || !u.returned", new: "!u.hijacked", run: "Place"},
	{file: "httplimit/fields.go", old: "reset = admission.Seconds(time.Duration(at.UnixNano()))", new: "reset = at.Unix()"},
	{file: "admission/addr.go", old: "&& p.Bits() >= 96 {", new: "&& p.Bits() > 96 {"},

	// Guarantees, each with the test that shows it.
	{file: "key.go", old: "if c == ':' || c == '\\\\' {", new: "if c == ':' {", run: "^TestKeysOfSeveralPartsAreNeverTheSame$"},
	{file: "internal/fixedwindow/names.go", old: "kind = \"s\"", new: "kind = \"a\"", run: "^TestRecordNamesAreAsDocumented$"},
	{file: "internal/fixedwindow/names.go", old: "alignedMarks = \"lnh\"", new: "alignedMarks = \"lln\"", run: "^TestNamesOfWindowsAreUniqueAndParsed$"},
	{file: "internal/slot/bands.go", old: "margin := doom + idle + live", new: "margin := doom + idle", run: "^TestTablesOfBands$"},
	{file: "internal/backoff/backoff.go", old: "b.next += min(b.next, b.max-b.next)", new: "b.next += b.next", tests: "internal/pool", run: "^TestBackoffIsBounded$"},
	{file: "internal/pool/call.go", old: "sentNow && !cl.ReadOnly() ||", new: "sentNow && false ||", run: "^TestWhichCallsAreSentAgain$"},
	{file: "internal/pool/call.go", old: "if try >= p.o.MaxRetries ||", new: "if try > p.o.MaxRetries ||", tests: "internal/systemtest/transport", run: "^TestReadsAreRepeatedMaxRetriesTimes$"},
	{file: "internal/conn/queue.go", old: "if q.inFlight > 0 && q.inFlight+cl.Len() > q.maxInFlight {", new: "if q.inFlight > 0 && q.inFlight > q.maxInFlight {", tests: "internal/pool", run: "^TestNoMoreRequestsAreInFlightThanAllowed$"},
	{file: "internal/conn/queue.go", old: "if q.queuedRequests > 0 && q.queuedRequests+n > q.maxQueued {", new: "if q.queuedRequests > q.maxQueued {", tests: "internal/systemtest/transport", run: "^TestTooManyQueuedRequestsAreRejected$"},
	{file: "internal/pubsub/queue.go", old: "q.gaps[i] = gap\n\t\t\treturn", new: "_ = i", run: "^TestGapsDoNotAccumulate$"},
	{file: "admission/keys.go", old: "return digestPrefix, Digest(key)", new: "return digestPrefix, key", tests: "httplimit", run: "^TestALongKeyIsNotStored$"},
	{file: "admission/keys.go", old: "return g.cfg.PlainKeys && len(key) <= maxKey", new: "return g.cfg.PlainKeys", tests: "httplimit", run: "^TestALongKeyIsNotStored$"},
	{file: "admission/fields.go", old: "name + \";q=\"", new: "name + \";l=\"", tests: "httplimit", run: "^TestFieldsAreThoseOfTheDraft$"},
	{file: "memory/bucket.go", old: "if part++; part == maxParts {\n\t\t\treturn nanos + 1, 0\n\t\t}", new: "", run: "^TestTokenBucketAgreesWithRationalNumbers$"},

	// The conformance suite.
	{file: "backendtest/any.go", old: "case unsupported && !without:", new: "case false:"},
	{file: "backendtest/suite.go", old: "t.Skip(why)", new: "t.Log(why)", run: "^TestSubjectNamesWhatTheBackendLeavesOut$"},
	{file: "internal/breaker/circuit.go", old: "o == Away && t.epoch == c.epoch.Load() &&", new: "o == Away &&"},
	{file: "internal/breaker/circuit.go", old: "c.row.Store(0)\n\t\t}", new: "}"},
	{file: "internal/breaker/circuit.go", old: "c.trial == trialNext || c.trial == noTrial && !c.probing", new: "c.trial == trialNext"},
	{file: "internal/breaker/circuit.go", old: "probe := c.probe; c.trial == noTrial {", new: "probe := c.probe; c.trial != trialMade {"},
	{file: "internal/breaker/circuit.go", old: "\t\tc.trial = noTrial\n\t\tc.cause.Set(cause)\n\t\tc.startProbing()", new: "\t\tc.cause.Set(nil)"},
	{file: "internal/deadline/deadline.go", old: "c.parent.Err() == nil && c.period.Err() != nil", new: "c.period.Err() != nil"},
	{file: "internal/deadline/deadline.go", old: "time.AfterFunc(b.d/16, func() { b.current.CompareAndSwap(p, nil) })", new: ""},
	{file: "internal/deadline/deadline.go", old: "m.stop = context.AfterFunc(c.period, m.cancel)", new: "m.stop = func() bool { return true }"},
	{file: "store.go", old: "errors.Is(err, ErrClosed) || errors.Is(err, ErrOverloaded)", new: "errors.Is(err, ErrClosed)", run: "Outage|NoOutage"},
	{file: "store.go", old: "return breaker.Away, &outage.TimeoutError{", new: "return breaker.Nothing, &outage.TimeoutError{", run: "Outage"},
	{file: "store.go", old: "defer func() {\n\t\tif outcome", new: "outcome, err = s.call(ctx, call)\n\tfunc() {\n\t\tif outcome", run: "^TestAPanicDuringATrialIsNoEnd$"},
	{file: "store.go", old: "e.Call, e.Key, e.Sent = call, key, false", new: "e.Call, e.Key = call, key", run: "^TestACallThatIsNotMadeSaysWhy$"},
	{file: "internal/outage/watch.go", old: "\"throttr: the store is away\", \"store\", w.name(), \"error\", w.Text(cause)", new: "\"throttr: the store is away\", \"store\", w.name(), \"error\", cause", tests: ".", run: "^TestTheLinesOfAnOutageHaveNoKeys$"},
	{file: "store.go", old: "return s.circuits[s.part(key)]", new: "return s.circuits[0]", run: "^TestOneServerOfSeveralIsAway$"},
	{file: "policy.go", old: "l.Burst = max(l.Burst/o.processes, min(l.Burst, 1))", new: "", run: "^TestTheFallbackCountsToTheShareOfAProcess$"},
	{file: "policy.go", old: "res.RetryAfter = min(res.RetryAfter, max(l.Scale, maxDegradedRetryAfter))", new: "", run: "^TestTheFallbackCountsToTheShareOfAProcess$"},
	{file: "internal/outage/watch.go", old: "last, after, degraded, denied := w.open == 0,", new: "last, after, degraded, denied := true,", tests: ".", run: "Outage|Server"},
	{file: "internal/outage/watch.go", old: "if !first {\n\t\treturn\n\t}", new: "", tests: ".", run: "Outage|Server"},
}
