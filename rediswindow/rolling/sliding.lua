-- Sliding windows. A field of the hash is a window: its name is the scale. Its value has four doubles:
-- the start of an aligned window in microseconds, how many hits it has, how many the one before it
-- has, and a number that changes when all hits are forgotten. The arguments of a take are scale, limit
-- and n.
local width, epochs = 3, 65536

local function load(key, field, time)
  local scale = tonumber(field)
  local s = {key = key, field = field, time = time, scale = scale, start = time - time % scale}
  local value = redis.call('HGET', key, field)
  if not value then
    s.hits, s.before, s.epoch, s.new = 0, 0, time % epochs, true
    return s
  end
  local start
  start, s.hits, s.before, s.epoch = struct.unpack('<dddd', value)
  if s.start <= start then
    s.start = start
  else
    s.before, s.hits, s.new = s.start == start + scale and s.hits or 0, 0, true
  end
  return s
end

local function save(s, grace)
  redis.call('HSET', s.key, s.field, struct.pack('<dddd', s.start, s.hits, s.before, s.epoch))
  if s.new then extend(s.key, s.start + 2 * s.scale - s.time, grace) end
end

-- weight returns how many hits of the aligned window before count now, rounded up.
local function weight(s)
  local left = s.start + s.scale - s.time
  if left >= s.scale then return s.before end
  local product = s.before * left
  if product >= most then return math.min(s.before, math.ceil(product / s.scale * (1 + 2 ^ -50))) end
  local rest = math.fmod(product, s.scale)
  if rest > 0 then product = product - rest + s.scale end
  return product / s.scale
end

local function fits(s, at) return s.hits + weight(s) + ARGV[at + 2] <= tonumber(ARGV[at + 1]) end

local function count(s, n) s.hits = math.min(s.hits + n, most) end

local function take(s, at)
  local n = tonumber(ARGV[at + 2])
  count(s, n)
  return n > 0
end

local function clear(s) s.hits, s.before, s.epoch = 0, 0, (s.epoch + 1) % epochs end

local function active(s) return s.hits > 0 or s.before > 0 end

-- giveback gives back to the aligned window with a number.
local function giveback(s, place, n)
  local age = s.start / s.scale - place
  if age == 0 and s.hits < most then
    s.hits = math.max(s.hits - n, 0)
  elseif age == 1 and s.before < most then
    s.before = math.max(s.before - n, 0)
  else
    return false
  end
  return true
end

local function describe(s, result)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = s.start, s.hits, s.before, s.epoch
end
