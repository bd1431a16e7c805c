-- KEYS: the hash of each hit. ARGV: time or '', aligned, grace, ID of windows that open, and then scale
-- and increment of each hit.
-- Adds to the active windows, or opens windows. Returns the time, and for each hit the count before
-- it, start and ID of its window. If something is wrong with one of several windows, its count is -1,
-- and nothing was added to it.
local time = now(ARGV[1])
local stamp = string.format('%.0f', time)

local function add(key, field, increment)
  local value = redis.call('HGET', key, field)
  if value then
    local count, start, id = string.match(value, '^(%d+) (%-?%d+) %-?%d+ ?(%d*)$')
    if not count then error('not a window: ' .. value) end
    local began = tonumber(start)
    if time < began + field then
      count = tonumber(count)
      redis.call('HSET', key, field, string.format('%.0f %s %s %s', math.min(count + increment, most), start, stamp, id))
      return count, began, tonumber(id) or 0
    end
  end
  return 0, open(key, field, tonumber(increment), time, ARGV[2], ARGV[3], ARGV[4]), tonumber(ARGV[4])
end

if #KEYS == 1 then return {time, add(KEYS[1], ARGV[5], ARGV[6])} end
local result = {time}
for i = 1, #KEYS do
  local ok, count, start, id = pcall(add, KEYS[i], ARGV[2 * i + 3], ARGV[2 * i + 4])
  if not ok then count, start, id = -1, 0, 0 end
  local at = 3 * i
  result[at - 1], result[at], result[at + 1] = count, start, id
end
return result
