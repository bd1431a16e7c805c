-- Windows that end at a time. The value has three doubles: count, start in microseconds since 1970, and
-- ID, a random number. Aligned windows have the letter a. The arguments are field, Max, n and the ID of a
-- window that opens.
local format = '<ddd'

local function load(s, value, fresh)
  s.count, s.live = 0, -longest
  if not value or fresh then return end
  local count, start, id
  if #value == 24 then count, start, id = struct.unpack(format, value) end
  if not (count and count >= 0 and count <= most and start - start == 0) then error('not a window: ' .. value) end
  if s.time < start + s.scale and start < s.time + s.scale then
    s.count, s.start, s.epoch, s.live = count, start, id, start + s.scale
  end
end

local function remove(s) call('HDEL', s.key, s.field) end

local function save(s)
  if s.start then
    call('HSET', s.key, s.field, struct.pack(format, s.count, s.start, s.epoch))
  else
    remove(s)
  end
  return s.opened
end

local function fits(s, at) return s.count + ARGV[at + 2] <= tonumber(ARGV[at + 1]) end

local function count(s, at)
  s.count = math.min(s.count + ARGV[at + 2], most)
  if s.start then return end
  s.start, s.epoch, s.opened = s.time, tonumber(ARGV[at + 3]), true
  if string.byte(s.field) == 97 then s.start = s.time - s.time % s.scale end
  s.live = s.start + s.scale
end

local function take(s, at)
  if tonumber(ARGV[at + 2]) == 0 then return false end
  count(s, at)
  return true
end

local function clear(s) s.count, s.start, s.opened = 0, nil, nil end

local function active(s) return s.start ~= nil end

local function giveback(s, _, n, empty)
  if s.count >= most or s.epoch == 0 then return false end
  s.count = math.max(s.count - n, 0)
  if empty and s.count == 0 then s.start = nil end
  return true
end

local function describe(s, result)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = s.start and s.count or -1, s.start or 0, s.epoch or 0, 0
end

return {width = 4, load = load, save = save, remove = remove, fits = fits, take = take, count = count,
  clear = clear, active = active, giveback = giveback, describe = describe}
