package main

// redisFaults are the faults in the backends of Redis that tests see.
var redisFaults = []fault{
	{file: "internal/redisurl/redisurl.go", old: "return u.User == nil && strings.Contains(u.Host, \":\")", new: "return false", tests: "redisbackend", run: "^TestErrorsOfOpenHaveNoPasswordWithoutAHost$"},
	{file: "rediswindow/algorithm.go", old: "later := all - 1 - rank", new: "later := all - 1", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/lua/windows.lua", old: "math.ceil((lives - time) / 1000) + grace", new: "math.ceil((lives - time) / 2000) + grace", tests: "redisbackend", run: "^TestHashExpiresAfterItsLastWindow$"},
	{file: "rediswindow/lua/windows.lua", old: "if b and c == x and c ~= 0", new: "if b and c ~= 0", tests: "redisbackend", run: "^TestConformance$/^fixed"},
	{file: "rediswindow/lua/windows.lua", old: "b, c, id = time, id, id + 1", new: "b, c = time, id", tests: "redisbackend", run: "^TestConformance$/^fixed"},
	{file: "rediswindow/lua/windows.lua", old: "if fits < all then all = fits end", new: "all = fits", tests: "rediswindow", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/lua/windows.lua", old: "fits, room = fits + 1, room - n", new: "fits, room = m, room - n", tests: "rediswindow", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/lua/windows.lua", old: "a, b = a + all * n, b + all * np", new: "a, b = a + n, b + np", tests: "rediswindow", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "rediswindow/name.go", old: "append(append(appendTag(to, key), '}'), version...)", new: "append(appendTag(to, key), '}')", tests: "redisbackend", run: "^TestVersionsMisreadNothing$"},
	{file: "rediswindow/request.go", old: "e.all = min(e.all, int(bytes[w]))", new: "e.all = int(bytes[w])", run: "^TestCallsThatShareARequestAgreeWithThoseThatDoNot$"},
	{file: "internal/redisreply/redisreply.go", old: "e.matches = []error{window.ErrFull, window.ErrUnavailable}", new: "e.matches = []error{window.ErrUnavailable}", tests: "redisbackend", run: "^TestServerWithoutMemoryFailsHitsTogether$"},
	{file: "internal/redisreply/redisreply.go", old: "!closed || !slices", new: "!slices", run: "^TestNothingThatAReplyQuotesIsShown$"},
	{file: "internal/redisreply/redisreply.go", old: "return shown\n\t}", new: "return reply\n\t}", run: "^TestNothingThatAReplyQuotesIsShown$"},
	{file: "redisbackend/open.go", old: "\tif !redisreply.Demoted(reply) {", new: "\tif true {", tests: "redisbackend", run: "^TestAPrimaryThatBecomesAReplicaIsLeft$"},
	{file: "redisbackend/open.go", old: "longestPause  = 400 * time.Millisecond", new: "longestPause  = 4 * time.Second", tests: "redisbackend", run: "^TestLazyOpen$"},
}
