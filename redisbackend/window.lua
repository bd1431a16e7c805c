-- Stands before each of the other scripts. A key's windows are one hash: a field per scale, named
-- by it, whose value is "<count> <start> <last update>". Times are microseconds since 1970.

-- Counts stay here. It is over every limit, and up to it a double is exact.
local most = 9007199254740992

-- now returns the time: the given one, or else the server's.
local function now(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- parse returns a window's count, start and last update, or nil for one that is not active.
local function parse(value, scale, time)
  local count, start, updated = string.match(value, '^(%d+) (-?%d+) (-?%d+)$')
  if not count then error('not a window: ' .. value) end
  start = tonumber(start)
  if time < start + scale then return tonumber(count), start, tonumber(updated) end
end

-- prune removes the windows that are over.
local function prune(key, time)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if not parse(all[i + 1], tonumber(all[i]), time) then redis.call('HDEL', key, all[i]) end
  end
end

local function write(key, field, count, start, time)
  redis.call('HSET', key, field, string.format('%.0f %.0f %.0f', count, start, time))
end

-- open puts a window in the place of a field, and returns its start. The hash is kept until the
-- last of its windows is over, and then for grace milliseconds. Whenever new fields have doubled
-- their number, from 16 on, those of windows that are over are removed.
local function open(key, field, count, time, aligned, grace)
  local scale, start = tonumber(field), time
  if aligned == '1' then start = time - time % scale end
  local fields = redis.call('HLEN', key)
  if fields >= 16 and bit.band(fields, fields - 1) == 0 and redis.call('HEXISTS', key, field) == 0 then
    prune(key, time)
  end
  write(key, field, count, start, time)
  local left = math.ceil((start + scale - time) / 1000) + tonumber(grace)
  if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, string.format('%.0f', left)) end
  return start
end

