-- KEYS: the hash. ARGV: time or '', grace, whether what was counted is forgotten first ('1'), and then the
-- arguments of a take, with a bound in place of what it needs.
-- Counts, whether it fits or not. Returns the time, and what is stored then.
local fresh = ARGV[3] == '1'
local s = load(KEYS[1], ARGV[4], fresh)
if fresh then s.algorithm.clear(s) end
local result = {time}
s.algorithm.count(s, 4)
store(s)
s.algorithm.describe(s, result)
return result
