-- Sliding windows. The value has four doubles: the start of an aligned window in microseconds, how many
-- hits it has, how many the one before it has, and a number that changes when all hits are forgotten. The
-- arguments are field, Max (or the bound of a count) and n.
local epochs = 65536

local function load(s, value)
  local time, scale = s.time, s.scale
  s.start = time - time % scale
  if not value then
    s.hits, s.before, s.epoch, s.live = 0, 0, time % epochs, -longest
    return
  end
  local start
  start, s.hits, s.before, s.epoch = struct.unpack('<dddd', value)
  s.live = start + 2 * scale
  if start - time >= scale then
    s.hits, s.before, s.epoch, s.live = 0, 0, (s.epoch + 1) % epochs, -longest
  elseif s.start <= start then
    s.start = start
  else
    s.before, s.hits = s.start == start + scale and s.hits or 0, 0
  end
end

local function save(s)
  call('HSET', s.key, s.field, struct.pack('<dddd', s.start, s.hits, s.before, s.epoch))
  local live = s.live
  s.live = s.start + 2 * s.scale
  return s.live > live
end

local function remove(s) call('HDEL', s.key, s.field) end

-- product returns a product of up to 2^53 and up to 2^52, exactly: how many times 2^52, and the rest.
local function product(a, b)
  local half = 67108864 -- 2^26
  local a0, b0 = a % half, b % half
  local a1, b1 = (a - a0) / half, (b - b0) / half
  local low, x, y = a0 * b0, a1 * b0, a0 * b1
  local middle = x % half + y % half + math.floor(low / half)
  local high = a1 * b1 + math.floor(x / half) + math.floor(y / half) + math.floor(middle / half)
  return high, middle % half * half + low % half
end

-- fits compares the hits of the aligned window before, weighted by the part of it that still counts,
-- with the room for them, both times the scale. If the products are different as doubles, they differ
-- in the same way exactly.
local function fits(s, at)
  local room = ARGV[at + 1] - s.hits - ARGV[at + 2]
  if room < 0 then return false end
  local left = math.min(s.start + s.scale - s.time, s.scale)
  local hits, bound = s.before * left, room * s.scale
  if hits ~= bound or hits < most then return hits <= bound end
  local high, low = product(s.before, left)
  local boundHigh, boundLow = product(room, s.scale)
  return high < boundHigh or high == boundHigh and low <= boundLow
end

local function count(s, at) s.hits = math.max(s.hits, math.min(s.hits + ARGV[at + 2], tonumber(ARGV[at + 1]))) end

local function take(s, at)
  local n = tonumber(ARGV[at + 2])
  s.hits = s.hits + n
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

return {width = 3, load = load, save = save, remove = remove, fits = fits, take = take, count = count,
  clear = clear, active = active, giveback = giveback, describe = describe}
