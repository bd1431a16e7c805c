package main

// memoryFaults are the faults in package memory that tests see.
var memoryFaults = []fault{
	{file: "memory/access.go", old: "\t\tx.record.set(x.state)\n\t\tx.shard.mayEnd(a, x.state, x.ref)", new: "\t\tx.record.set(x.state)"},
	{file: "memory/bucket.go", old: "nanos, part := refill(n, r.max, scale, true)\n\tafter =", new: "nanos, part := refill(n, r.max, scale, false)\n\tafter =", run: "^TestTokenBucketAgreesWithRationalNumbers$"},
	{file: "memory/bucket.go", old: "if part++; part == maxParts {\n\t\t\treturn nanos + 1, 0\n\t\t}", new: "", run: "^TestTokenBucketAgreesWithRationalNumbers$"},
	{file: "memory/log.go", old: "v.wait = e.scale - minus(now, l.nth(&c, int(v.count-(limit-n))))", new: "v.wait = e.scale - minus(now, l.nth(&c, int(v.count-limit)))", run: "^TestConformance$"},
	{file: "memory/shard.go", old: "b.secret + key", new: "key", run: "^TestHashOfALongKeyIsASecretOfTheBackend$"},
	{file: "memory/shared.go", old: "scale: k.scale, kind: k.kind&^long | shared}", new: "scale: k.scale, kind: k.kind&^long&^7 | shared | 1}"},
	{file: "memory/sliding.go", old: "if minus(now, w.start) >= e.scale {\n\t\t\treturn false", new: "if minus(now, w.start) > e.scale+e.scale/8 {\n\t\t\treturn false"},
	{file: "memory/take.go", old: "windows[i].Refused, windows[i].RetryAfter = true, v.wait", new: "windows[i].RetryAfter = v.wait", run: "^TestTakesOfKeysThatShareACount$"},
}
