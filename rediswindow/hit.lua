-- KEYS: the hash of each hit. ARGV: time or '', aligned, grace, ID of windows that open, and then scale
-- and increment of the hits up to the key with the index that follows, or up to the last key if none
-- follows.
-- Adds to the active windows, or opens windows. Returns the time, and for each hit the count before
-- it, start and ID of its window. If something is wrong with one of several windows, its count is -1 if
-- nothing was added to it, and -2 if it was opened, but does not expire.
--
-- Most hits are one, on a window that is active. So what opens windows comes after it, where it costs
-- such a hit nothing.
local time = tonumber(ARGV[1])
if not time then
  local now = call('TIME')
  time = now[1] * 1000000 + now[2]
end

-- add adds to the active window. It returns nothing if there is none.
local function add(key, field, increment)
  local value = call('HGET', key, field)
  if not value then return end
  local before, start, _, id = read(value)
  if time >= start + field or start >= time + field then return end -- see parse
  local count = before + increment
  if count > most then count = most end
  call('HSET', key, field, packed(count, start, time, id))
  return before, start, id
end

if #KEYS == 1 then
  local before, start, id = add(KEYS[1], ARGV[5], ARGV[6])
  if before then return {time, before, start, id} end
end
