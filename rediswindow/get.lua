-- KEYS: the hash. ARGV: scale, time or ''.
-- Returns count, start, time, last update and ID of the active window, or nothing if there is none.
local value = call('HGET', KEYS[1], ARGV[1])
if not value then return {} end
local time = now(ARGV[2])
local count, start, updated, id = parse(value, tonumber(ARGV[1]), time)
if not count then return {} end
return {count, start, time, updated, id}
