-- Token buckets. The value, with all times in microseconds, is:
--
--   full    when the bucket is full, the whole microseconds (a double)
--   part    the rest of it, in 2^-32 µs (a double)
--   epoch   a number that changes when takes of before can't be given back any more (two bytes)
--   live    until when the hash lives at least (a double)
--   start   the start of the epoch (a double)
--   back    the time of all that was given back in the epoch, rounded up (a double)
--   at      the time of the last change (a double)
--   T       how long a token takes: "<whole microseconds> <2^-32 µs>"
--
-- An epoch ends when the bucket is full, when all hits are forgotten, and when T changes. If the rate or
-- the size of the bucket changes, full stays.
--
-- The arguments are field, T, the time of all tokens less those that are taken (or the bound of a count),
-- and the time of those that are taken, both as two numbers.
local second, epochs, format = 4294967296, 65536, '<ddHdddd'

-- begin begins an epoch.
local function begin(s) s.epoch, s.start, s.back = (s.epoch + 1) % epochs, s.time, 0 end

local function load(s, value)
  local time = s.time
  if not value then
    s.full, s.part, s.epoch, s.live, s.start, s.back, s.at, s.T = time, 0, time % epochs, -longest, time, 0, time, ''
    return
  end
  s.full, s.part, s.epoch, s.live, s.start, s.back, s.at = struct.unpack(format, value)
  s.T = string.sub(value, 51)
  if s.at - time >= s.scale then
    s.full, s.part, s.live, s.at = time, 0, -longest, time
    begin(s)
  end
end

local function save(s)
  local keep = s.full > s.live
  if keep then s.live = s.full + s.scale end
  s.at = math.max(s.at, s.time)
  call('HSET', s.key, s.field, struct.pack(format, s.full, s.part, s.epoch, s.live, s.start, s.back, s.at) .. s.T)
  return keep
end

local function remove(s) call('HDEL', s.key, s.field) end

-- know sets T to that of a take, a peek or a count.
local function know(s, T)
  if s.T ~= T then
    s.T = T
    begin(s)
  end
  if s.full < s.time then -- a bucket is never more than full
    s.full, s.part = s.time, 0
    begin(s)
  end
end

-- later reports whether the bucket is full later than a time from now.
local function later(s, whole, part)
  local latest = s.time + whole
  return s.full > latest or s.full == latest and s.part > tonumber(part)
end

local function fits(s, at)
  know(s, ARGV[at + 1])
  return not later(s, ARGV[at + 2], ARGV[at + 3])
end

local function take(s, at)
  local whole, part = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  s.full, s.part = s.full + whole, s.part + part
  if s.part >= second then s.full, s.part = s.full + 1, s.part - second end
  return whole > 0 or part > 0
end

-- count takes tokens up to the bound. What is owed already stays.
local function count(s, at)
  know(s, ARGV[at + 1])
  local bound, part = ARGV[at + 2], ARGV[at + 3]
  if later(s, bound, part) then return end
  take(s, at)
  if later(s, bound, part) then s.full, s.part = s.time + bound, tonumber(part) end
end

local function clear(s)
  s.full, s.part = s.time, 0
  begin(s)
end

local function active(s) return s.full > s.time or s.full == s.time and s.part > 0 end

-- cost returns the time of n tokens. It is exact up to 2^21 of them, and otherwise rounded up.
local function cost(n, T)
  local whole, part = string.match(T, '^(%d+) (%d+)$')
  part = n * part
  local carry = math.floor(part / second)
  if part < most then part = part - carry * second else carry, part = carry + 2, 0 end
  return math.min(n * whole + carry, longest), part
end

-- giveback gives back the time of n tokens, less what has come back of them since they were taken. The
-- place of a take is when the bucket was to be full after it, plus what had been given back in its epoch
-- by then, modulo 2^46.
--
-- Let V be when the bucket would be full without these tokens, and without all others that were given
-- back. What is given back must not be more than full - V. That is at least the time of n tokens if the
-- bucket would not have been full since they were taken. Otherwise, all that was taken until then would
-- have come back by the place - back, even if what was given back since was taken before: so it is at
-- least place - back - time. If that is less, and something was given back in the epoch, it may have been
-- taken later. Then nothing is given back, rather than a part.
local function giveback(s, place, n)
  local left = (place - s.back - s.full + 35184372088832) % 70368744177664 - 35184372088832 + s.full - s.time
  local whole, part = cost(n, s.T)
  if s.time > s.start and (whole > left or whole == left and part > 0) then
    if s.back > 0 or left <= 0 then return false end
    whole, part = left, 0
  end
  s.back = (s.back + whole + (part > 0 and 1 or 0)) % 70368744177664
  s.full, s.part = s.full - whole, s.part - part
  if s.part < 0 then s.full, s.part = s.full - 1, s.part + second end
  if s.full < s.time then s.full, s.part = s.time, 0 end
  return true
end

local function describe(s, result)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = s.full, s.part, s.epoch, s.back
end

return {width = 6, load = load, save = save, remove = remove, fits = fits, take = take, count = count,
  clear = clear, active = active, giveback = giveback, describe = describe}
