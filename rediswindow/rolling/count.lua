-- KEYS: the hash. ARGV: scale, time or '', grace, n, whether all hits are forgotten first, the largest
-- count.
-- Counts n hits. Returns the time, and what is stored then.
local s = load(KEYS[1], ARGV[1], now(ARGV[2]))
if ARGV[5] == '1' then clear(s) end
count(s, tonumber(ARGV[4]), tonumber(ARGV[6]))
store(s, ARGV[3])
local result = {s.time}
describe(s, result)
return result
