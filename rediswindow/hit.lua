-- KEYS: the hash. ARGV: scale, time or '', aligned, grace, increment.
-- Adds to the active window, or opens a window. Returns count, start and time.
local key, field, time, increment = KEYS[1], ARGV[1], now(ARGV[2]), tonumber(ARGV[5])
local value = redis.call('HGET', key, field)
local count, start
if value then count, start = parse(value, tonumber(field), time) end
if count then
  count = math.min(count + increment, most)
  write(key, field, count, start, time)
else
  count = increment
  start = open(key, field, count, time, ARGV[3], ARGV[4])
end
return {count, start, time}
