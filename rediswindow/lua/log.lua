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
-- Times are in microseconds. The arguments are field, Max (or the bound of a count) and n.
local epochs, length, format = 65536, 31, '<ddddd'

local function name(s, number) return string.format('#%.0f:', number) .. s.field end

-- block returns the times of a block.
local function block(s, number)
  if not s.blocks[number] then s.blocks[number] = call('HGET', s.key, name(s, number)) end
  return s.blocks[number]
end

-- nth returns the time of the hit at a position.
local function nth(s, position)
  return (struct.unpack('<d', block(s, math.floor(position / length)), position % length * 8 + 1))
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
      high, step = at, math.max(math.floor((at - low) / 2), 1)
    end
  end
  return low
end

local function load(s, value)
  local time = s.time
  s.blocks = {}
  if value then
    s.epoch, s.live, s.first, s.past, s.latest = struct.unpack(format, value)
  else
    s.epoch, s.live, s.first, s.past, s.latest = time % epochs, -longest, 0, 0, time
  end
  s.low, s.high = math.floor(s.first / length), math.floor((s.past - 1) / length) -- the blocks in the hash
  if s.past > s.first and s.latest - time >= s.scale then
    s.first, s.epoch, s.live = s.past, (s.epoch + 1) % epochs, -longest
  end
  s.first = s.first + upTo(s, time - s.scale)
  if s.first == s.past then s.first, s.past = 0, 0 end
end

-- drop removes the blocks that have no hits any more.
local function drop(s)
  local low, high, gone = math.floor(s.first / length), math.floor((s.past - 1) / length), {}
  if s.first == s.past then low, high = s.high + 1, s.high end
  for i = s.low, math.min(low - 1, s.high) do gone[#gone + 1] = name(s, i) end
  for i = math.max(high + 1, s.low), s.high do gone[#gone + 1] = name(s, i) end
  for i = 1, #gone, 4096 do call('HDEL', s.key, unpack(gone, i, math.min(i + 4095, #gone))) end
end

local function save(s)
  local keep = s.time + s.scale > s.live
  if keep then s.live = s.time + 2 * s.scale end
  call('HSET', s.key, s.field, struct.pack(format, s.epoch, s.live, s.first, s.past, s.latest))
  drop(s)
  return keep
end

local function clear(s) s.first, s.past, s.epoch = 0, 0, (s.epoch + 1) % epochs end

local function remove(s)
  clear(s)
  drop(s)
  call('HDEL', s.key, s.field)
end

local function fits(s, at)
  local limit, n = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local surplus = s.past - s.first + n - limit
  if surplus > 0 and n <= limit then s.last = s.first + surplus - 1 end -- the hit that has to be over
  return surplus <= 0
end

-- append appends times in binary form.
local function append(s, times)
  local at = 1
  while at <= #times do
    local used = s.past % length
    local number, some = (s.past - used) / length, string.sub(times, at, at + (length - used) * 8 - 1)
    at, s.past = at + #some, s.past + #some / 8
    if used > 0 then some = string.sub(block(s, number), 1, used * 8) .. some end
    call('HSET', s.key, name(s, number), some)
    s.blocks[number] = some
  end
end

-- If the clock was set back, the time of hits is that of the last one.
local function count(s, at)
  local n = math.min(tonumber(ARGV[at + 2]), ARGV[at + 1] - (s.past - s.first))
  if n <= 0 then return end
  s.latest = s.past > s.first and math.max(s.latest, s.time) or s.time
  append(s, string.rep(struct.pack('<d', s.latest), n))
end

local function take(s, at)
  count(s, at)
  return tonumber(ARGV[at + 2]) > 0
end

local function active(s) return s.past > s.first end

-- giveback gives back hits of a time, which is given modulo 2^46.
local function giveback(s, place, n)
  local at = s.latest - (s.latest - place) % 70368744177664
  if at <= s.time - s.scale then return false end
  local high = upTo(s, at)
  local removed = math.min(n, high - upTo(s, at - 1))
  local later = {}
  high = s.first + high
  for i = math.floor(high / length), math.floor((s.past - 1) / length) do
    local from, to = math.max(high - i * length, 0), math.min(s.past - i * length, length)
    later[#later + 1] = string.sub(block(s, i), from * 8 + 1, to * 8)
  end
  s.past = high - removed
  append(s, table.concat(later))
  if s.past > s.first then s.latest = nth(s, s.past - 1) end
  return removed > 0
end

-- describe appends the number of hits, the time of the last, and of the one that has to be over before the
-- take fits, or the present time.
local function describe(s, result)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = s.past - s.first, s.latest, s.time, s.epoch
  if s.last then result[n + 3] = nth(s, s.last) end
end

return {width = 3, load = load, save = save, remove = remove, fits = fits, take = take, count = count,
  clear = clear, active = active, giveback = giveback, describe = describe}
