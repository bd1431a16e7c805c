-- Sliding logs. The hits of a scale are a list, whose name is that of the hash, a colon and the scale:
-- for each hit, its time in microseconds, in ascending order. The field of the hash with the name of the
-- scale has two doubles: a number that changes when all hits are forgotten, and until when the list and
-- the hash live at least. The arguments of a take are scale, limit and n.
local width, epochs = 3, 65536

-- over returns how many hits of a list are over. It doubles its steps, because most of the time there
-- are few.
local function over(list, length, latest)
  local low, high, step = 0, length, 1 -- hits before low are over, and those from high on are not
  while low < high do
    local at = math.min(low + step, high) - 1
    if tonumber(redis.call('LINDEX', list, at)) <= latest then
      low, step = at + 1, step * 2
    else
      high, step = at, math.max(math.floor((at - low) / 2), 1)
    end
  end
  return low
end

local function load(key, field, time)
  local s = {key = key, field = field, time = time, scale = tonumber(field), list = key .. ':' .. field}
  local value = redis.call('HGET', key, field)
  if value then
    s.epoch, s.live = struct.unpack('<dd', value)
  else
    s.epoch, s.live = time % epochs, -longest
  end
  s.length = redis.call('LLEN', s.list)
  s.over = over(s.list, s.length, time - s.scale)
  s.hits = s.length - s.over
  return s
end

local function save(s, grace)
  local keep = s.time + s.scale > s.live
  if keep then s.live = s.time + 2 * s.scale end
  redis.call('HSET', s.key, s.field, struct.pack('<dd', s.epoch, s.live))
  if keep then extend(s.key, s.live - s.time, grace) end
  if keep or s.length == 0 then extend(s.list, s.live - s.time, grace) end
end

local function fits(s, at)
  local limit, n = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local surplus = s.hits + n - limit
  if surplus > 0 and n <= limit then s.first = s.over + surplus - 1 end -- the hit that has to be over
  return surplus <= 0
end

-- count counts n hits, but no more than the bound.
local function count(s, n, bound)
  n = math.min(n, bound - s.hits)
  s.hits = s.hits + n
  local text = string.format('%.0f', s.time)
  while n > 0 do
    local some = {}
    for i = 1, math.min(n, 4096) do some[i] = text end
    redis.call('RPUSH', s.list, unpack(some))
    n = n - #some
  end
  if s.over > 0 then redis.call('LTRIM', s.list, s.over, -1) end
end

local function take(s, at)
  local n = tonumber(ARGV[at + 2])
  if n > 0 then count(s, n, tonumber(ARGV[at + 1])) end
  return n > 0
end

local function clear(s)
  redis.call('DEL', s.list)
  s.length, s.over, s.hits, s.epoch = 0, 0, 0, (s.epoch + 1) % epochs
end

local function active(s) return s.hits > 0 end

-- giveback gives back hits of a time, which is given modulo 2^46.
local function giveback(s, place, n)
  local at = s.time - (s.time - place) % 70368744177664
  if at <= s.time - s.scale then return false end
  local text = string.format('%.0f', at)
  local removed = redis.call('LREM', s.list, string.format('%.0f', n), text)
  s.hits = s.hits - removed
  return removed > 0
end

-- describe appends the number of hits, the time of the last, and of the one that has to be over before the
-- take fits, or the present time.
local function describe(s, result)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = s.hits, s.time, s.time, s.epoch
  if s.hits > 0 then result[n + 2] = tonumber(redis.call('LINDEX', s.list, -1)) end
  if s.first then result[n + 3] = tonumber(redis.call('LINDEX', s.list, s.first)) end
end
