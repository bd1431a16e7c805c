-- KEYS: the hash. ARGV: scale, time or '', aligned, grace, count, ID.
-- Opens a window, in place of the active one if there is one. Returns count, start, time, time and ID.
local time, count = now(ARGV[2]), tonumber(ARGV[5])
return {count, open(KEYS[1], ARGV[1], count, time, ARGV[3], ARGV[4], ARGV[6]), time, time, tonumber(ARGV[6])}
