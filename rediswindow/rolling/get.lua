-- KEYS: the hash. ARGV: scale, time or ''. Returns the time, and what is stored, if there are hits.
local s = load(KEYS[1], ARGV[1], now(ARGV[2]))
if not active(s) then return {} end
local result = {s.time}
describe(s, result)
return result
