-- Token buckets. A field of the hash is a bucket: its name is the scale. Its value, with all times in
-- microseconds, is:
--
--   full    when the bucket is full, the whole microseconds (a double)
--   part    the rest of it, in 2^-32 µs (a double)
--   epoch   a number that changes when takes of before can't be given back any more (two bytes)
--   live    until when the hash lives at least (a double)
--   start   the start of the epoch (a double)
--   back    the time of all that was given back in the epoch, rounded up (a double)
--   T       how long a token takes: "<whole microseconds> <2^-32 µs>"
--
-- An epoch ends when the bucket is full, when all hits are forgotten, and when T changes.
--
-- If T is '', no take has set the limit: part is then a number of hits, which were counted at full.
-- The arguments of a take are scale, T, the time of all tokens less those it takes, and the time of
-- those it takes, both as two numbers.
local width, second, epochs, format = 6, 4294967296, 65536, '<ddHddd'

-- begin begins an epoch.
local function begin(s) s.epoch, s.start, s.back = (s.epoch + 1) % epochs, s.time, 0 end

-- reach returns how far in the future the time is that a bucket never reaches. As T is rounded up, all
-- tokens of a limit can take longer than a scale: less than two, or, if T is the shortest time, less
-- than 2^22 µs.
local function reach(s)
  if s.T == '' then return s.scale end
  return s.T == '0 1' and 4194304 or 2 * s.scale
end

local function load(key, field, time)
  local s = {key = key, field = field, time = time, scale = tonumber(field)}
  local value = redis.call('HGET', key, field)
  if not value then
    s.full, s.part, s.epoch, s.live, s.start, s.back, s.T = time, 0, time % epochs, -longest, time, 0, ''
    return s
  end
  s.full, s.part, s.epoch, s.live, s.start, s.back = struct.unpack(format, value)
  s.T = string.sub(value, 43)
  if s.full - time >= reach(s) then
    s.full, s.part, s.live = time, 0, -longest
    begin(s)
  elseif s.T == '' and s.full + s.scale <= time then
    s.part = 0
  end
  return s
end

local function save(s)
  local needed = s.full
  if s.T == '' then needed = needed + s.scale end
  local keep = needed > s.live
  if keep then s.live = needed + s.scale end
  redis.call('HSET', s.key, s.field, struct.pack(format, s.full, s.part, s.epoch, s.live, s.start, s.back) .. s.T)
  return keep
end

local function remove(s) redis.call('HDEL', s.key, s.field) end

-- refill removes what is over: a bucket is never more than full.
local function refill(s)
  if s.full < s.time then
    s.full, s.part = s.time, 0
    begin(s)
  end
end

-- spend takes tokens of a time, as many as the bucket can owe.
local function spend(s, whole, part)
  part = s.part + part
  if part >= second then whole, part = whole + 1, part - second end
  s.full, s.part = math.min(s.full + whole, s.time + reach(s) - 1), part
end

-- cost returns the time of n tokens. It is exact up to 2^21 of them, and otherwise rounded up.
local function cost(n, T)
  local whole, part = string.match(T, '^(%d+) (%d+)$')
  part = n * part
  local carry = math.floor(part / second)
  if part < most then part = part - carry * second else carry, part = carry + 2, 0 end
  return math.min(n * whole + carry, longest), part
end

-- know sets T to that of a take or a peek.
local function know(s, T)
  if s.T == '' then
    local n = s.part
    if n == 0 then s.full = s.time end
    s.T, s.part, s.new = T, 0, n > 0
    spend(s, cost(n, T))
  elseif s.T ~= T then
    s.T = T
    begin(s)
  end
  refill(s)
end

local function fits(s, at)
  know(s, ARGV[at + 1])
  local latest = s.time + ARGV[at + 2]
  return s.full < latest or s.full == latest and s.part <= tonumber(ARGV[at + 3])
end

local function take(s, at)
  local whole, part = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  spend(s, whole, part)
  return whole > 0 or part > 0 or s.new
end

local function count(s, n)
  if s.T ~= '' then
    refill(s)
    return spend(s, cost(n, s.T))
  end
  s.full, s.part = s.time, math.min(s.part + n, most)
end

local function clear(s)
  s.full, s.part = s.time, 0
  begin(s)
end

local function active(s)
  if s.T == '' then return s.part > 0 end
  return s.full > s.time or s.full == s.time and s.part > 0
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
  if s.T == '' then return false end
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

local function describe(s, result, taken)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = s.full, s.part, s.epoch, s.back
  if taken then return end
  local whole, part = string.match(s.T, '^(%d+) (%d+)$')
  result[n + 5], result[n + 6] = tonumber(whole or 0), tonumber(part or 0)
end
