-- KEYS: the hash. ARGV: scale, time or '', aligned, grace, count.
-- Opens a window, in place of the active one if there is one. Returns count, start and time.
local time, count = now(ARGV[2]), tonumber(ARGV[5])
return {count, open(KEYS[1], ARGV[1], count, time, ARGV[3], ARGV[4]), time}
