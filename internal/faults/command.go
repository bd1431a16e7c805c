package main

// commandFaults are the faults in the command that tests see.
var commandFaults = []fault{
	{file: "cmd/throttr/flags.go", old: "(arg[1] < '0' || arg[1] > '9')", new: "arg[1] != '0'", run: "^TestFlagsAndArgumentsMix$"},
	{file: "cmd/throttr/flags.go", old: "(!l.f.isSet(\"name\") || l.Name == o.Name)", new: "(l.Name == \"\" || l.Name == o.Name)", run: "^TestCountsAreListed"},
	{file: "cmd/throttr/flags.go", old: "uint8(l.startDay) == max(o.StartDay, 1)", new: "true", run: "^TestCalendarFlags"},
	{file: "cmd/throttr/counts.go", old: "\t\tif l.matches(c.Limit) {\n\t\t\tall", new: "\t\tif true {\n\t\t\tall", run: "^TestCountsAreListed"},
	{file: "cmd/throttr/counts.go", old: "\t\tfind = l.peeked\n", new: "", run: "^TestCountsAreListed"},
	{file: "cmd/throttr/counts.go", old: "cmp.Or(l.Limit.Burst, l.Limit.Max)", new: "cmp.Or(l.Limit.Max)", run: "^TestWhatIsUnknown"},
	{file: "cmd/throttr/decide.go", old: "\t\t\tcall = limiter.Peek", new: "\t\t\t_ = limiter.Peek", run: "^TestDecisions"},
	{file: "cmd/throttr/decide.go", old: "res.Allowed && ok", new: "res.Allowed", run: "^TestDecisions"},
	{file: "cmd/throttr/counts.go", old: "b.Reset(ctx, key, c.Limit)", new: "b.Reset(ctx, c.Key, c.Limit)", run: "^TestCountsAreListed"},
	{file: "cmd/throttr/top.go", old: "elapsed < before.Left && ", new: "", run: "^Test(Rates|CountsThatStart)"},
	{file: "cmd/throttr/top.go", old: "past >= f.Limit.Scale/10 && ", new: "", run: "^TestCountsThatStart"},
	{file: "cmd/throttr/top.go", old: "past = f.Limit.Scale - w.Left", new: "past = elapsed", run: "^TestRates"},
	{file: "cmd/throttr/top.go", old: "max(t.every, pauses*t.readAll)", new: "t.every", run: "^TestFullest"},
	{file: "cmd/throttr/top.go", old: "if f.Window.Left > 0 && ", new: "if ", run: "^TestFullest"},
	{file: "cmd/throttr/top.go", old: "cmp.Compare(usage(&b.Listed), usage(&a.Listed))", new: "cmp.Compare(usage(&a.Listed), usage(&b.Listed))", run: "^TestFullest"},
	{file: "cmd/throttr/store.go", old: "return strings.HasPrefix(p, \"lazy=\")", new: "return p == \"lazy\"", run: "^TestStore"},
	{file: "serverbackend_list.go", old: "if l.Window.ExpiresAt.IsZero() {", new: "if false {", run: "^TestWindowsOfServersAreListed$"},
	{file: "serverbackend_list.go", old: "isOf := func(key string) bool { return name.IsOf(key, name.Limit()) }", new: "isOf := func(key string) bool { return name.Key == key }", run: "^TestWindowsOfServersAreListed$"},
	{file: "serverbackend_list.go", old: "r.Server != w.server || ", new: "", run: "^TestWindowsOfServersAreListed$"},
	{file: "cmd/throttr/flags.go", old: "\tf.duration(&e.timeout,", new: "\tif e.timeout == 0 {\n\t\te.timeout = defaultTimeout\n\t}\n\tf.duration(&e.timeout,", run: "^TestTimeoutAndInterrupt"},
	{file: "cmd/throttr/flags.go", old: "digits, negative := strings.CutPrefix(text, \"-\")", new: "digits, negative := text, text[:min(1, len(text))] == \"-\"", run: "^TestMistakesAreNamed$"},
	{file: "cmd/throttr/messages.go", old: "\t\t\tprinted++\n\t\t}\n", new: "\t\t}\n\t\tprinted++\n", run: "^TestMessagesArePublishedAndPrinted$"},
	{file: "cmd/throttr/mock.go", old: "if len(violations) > 0 {", new: "if false {", run: "^TestMockServerRuns$"},
	{file: "cmd/throttr/records.go", old: "if len(b) > maxStdin {", new: "if false {", run: "^TestKeysAreThoseOfHTTPLimit$"},
}
