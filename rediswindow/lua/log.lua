-- Sliding logs. The hash has the time of each hit, in ascending order, in blocks of up to 31 doubles.
-- The name of a block is #, its number, a colon and the field: the hit at a position is in the block
-- position / 31. The field has five doubles:
--
--   epoch   a number that changes when all hits are forgotten
--   live    until when the hash lives at least
--   first   the position of the first hit
--   past    the position after that of the last
--   latest  the time of the last
--
-- This is the body of a function of windows.lua, which returns those that read, change and describe a log.
local length, format = 31, '<ddddd'

local function name(s, number) return string.format('#%.0f:', number) .. s.field end

-- ask asks Redis.
local function ask(...)
  local reply = call(...)
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end

-- block returns the times of a block.
local function block(s, number)
  if not s.blocks[number] then s.blocks[number] = ask('HGET', s.key, name(s, number)) end
  return s.blocks[number]
end

-- nth returns the time of the hit at a position.
local function nth(s, position)
  return (decode('<d', block(s, floor(position / length)), position % length * 8 + 1))
end

-- upTo returns how many hits have this time or an earlier one. It doubles its steps, because most of the time
-- there are few.
local function upTo(s, latest)
  local low, high, step = 0, s.past - s.first, 1 -- hits before low have, and those from high on have not
  while low < high do
    local at = math.min(low + step, high) - 1
    if nth(s, s.first + at) <= latest then
      low, step = at + 1, step * 2
    else
      high, step = at, math.max(floor((at - low) / 2), 1)
    end
  end
  return low
end

local function clear(s) s.first, s.past, s.epoch = 0, 0, (s.epoch + 1) % epochs end

-- append appends times in binary form.
local function append(s, times)
  local at = 1
  while at <= #times do
    local used = s.past % length
    local number, some = (s.past - used) / length, string.sub(times, at, at + (length - used) * 8 - 1)
    at, s.past = at + #some, s.past + #some / 8
    if used > 0 then some = string.sub(block(s, number), 1, used * 8) .. some end
    ask('HSET', s.key, name(s, number), some)
    s.blocks[number] = some
  end
end

-- add adds n hits. If the clock was set back, their time is that of the last one.
local function add(s, n)
  if n <= 0 then return end
  s.latest = s.past > s.first and math.max(s.latest, time) or time
  append(s, string.rep(encode('<d', s.latest), n))
end

-- giveback gives back n hits of a time, which is given modulo 2^46, and reports whether there were any.
local function giveback(s, place, n)
  local at = s.latest - (s.latest - place) % 70368744177664
  if at <= time - s.scale then return false end
  local high = upTo(s, at)
  local removed = math.min(n, high - upTo(s, at - 1))
  local later = {}
  high = s.first + high
  for i = floor(high / length), floor((s.past - 1) / length) do
    local from, to = math.max(high - i * length, 0), math.min(s.past - i * length, length)
    later[#later + 1] = string.sub(block(s, i), from * 8 + 1, to * 8)
  end
  s.past = high - removed
  append(s, table.concat(later))
  if s.past > s.first then s.latest = nth(s, s.past - 1) end
  return removed > 0
end

-- read reads a log, and returns it and how many of m equal calls fit. It returns nothing if the value is none.
local function read(value, key, field, scale, verb, x, xp, n, m)
  local s = {key = key, field = field, scale = scale, blocks = {}}
  if not value then
    s.epoch, s.live, s.first, s.past, s.latest = time % epochs, -longest, 0, 0, time
  elseif #value == 40 then
    s.epoch, s.live, s.first, s.past, s.latest = decode(format, value)
  else
    return
  end
  s.low, s.high = floor(s.first / length), floor((s.past - 1) / length) -- the blocks in the hash
  if s.past > s.first and s.latest - time >= scale then
    clear(s)
    s.live = -longest
  end
  s.first = s.first + upTo(s, time - scale)
  if s.first == s.past then s.first, s.past = 0, 0 end

  local hits = s.past - s.first
  if verb == take or verb == peek then
    s.x, s.n = x, n
    if n > 0 then return s, math.max(0, math.min(m, floor((x - hits) / n))) end
    return s, hits <= x and m or 0
  elseif verb == back then
    return s, s.epoch == x and hits > 0 and (n == 0 or giveback(s, xp, n)) and 1 or 0
  elseif verb == prune then
    return s, s.live <= time and 1 or 0
  elseif verb == reset then
    return s, hits > 0 and 1 or 0
  end
  return s, m
end

-- describe returns the number of hits, the time of the last, that of the hit that has to be over before the take
-- fits, or the present time, and the epoch.
local function describe(s)
  local hits, over = s.past - s.first, time
  if s.n and s.n <= s.x and hits + s.n > s.x then over = nth(s, s.first + hits + s.n - s.x - 1) end
  return encode('<dddd', hits, s.latest, over, s.epoch)
end

-- drop removes the blocks that have no hits any more.
local function drop(s)
  local low, high, gone = floor(s.first / length), floor((s.past - 1) / length), {}
  if s.first == s.past then low, high = s.high + 1, s.high end
  for i = s.low, math.min(low - 1, s.high) do gone[#gone + 1] = name(s, i) end
  for i = math.max(high + 1, s.low), s.high do gone[#gone + 1] = name(s, i) end
  for i = 1, #gone, 4096 do ask('HDEL', s.key, unpack(gone, i, math.min(i + 4095, #gone))) end
end

-- change makes a call that changes a log, or all equal takes that fit, and returns what describe does, and until
-- when the hash must live if that is longer than before.
local function change(s, verb, all, n, x)
  if verb == take then
    add(s, all * n)
  elseif verb == set or verb == reset or verb == prune then
    clear(s)
  end
  if verb == count or verb == set then add(s, math.min(n, x - (s.past - s.first))) end
  local lives
  if verb == prune then
    ask('HDEL', s.key, s.field)
  else
    if time + s.scale > s.live then
      s.live = time + 2 * s.scale
      lives = s.live
    end
    ask('HSET', s.key, s.field, encode(format, s.epoch, s.live, s.first, s.past, s.latest))
  end
  drop(s)
  return describe(s), lives
end

return {read = read, change = change, describe = describe}
