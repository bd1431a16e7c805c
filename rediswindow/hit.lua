-- KEYS: the hash. ARGV: scale, time or '', aligned, grace, increment, ID of a window that opens.
-- Adds to the active window, or opens a window. Returns count, start, time, time and ID.
local key, field, time, increment = KEYS[1], ARGV[1], now(ARGV[2]), tonumber(ARGV[5])
local value = redis.call('HGET', key, field)
local count, start, _, id
if value then count, start, _, id = parse(value, tonumber(field), time) end
if count then
  count = math.min(count + increment, most)
  write(key, field, count, start, time, id)
else
  count, id = increment, ARGV[6]
  start = open(key, field, count, time, ARGV[3], ARGV[4], id)
end
return {count, start, time, time, tonumber(id) or 0}
