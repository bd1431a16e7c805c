-- KEYS: the hash of each hit. ARGV: time or '', grace, ID of windows that open, and then field, scale and n
-- of the hits up to the key with the index that follows, or up to the last key if none follows.
-- Adds to the active windows, or opens windows. See window.lua for what is stored. Returns the time, and
-- for each hit the count before it, start and ID of its window. The count is -1 if nothing was added to
-- one window: something is wrong with it, or its hash has so many fields that some have to be removed.
-- It is -2 if one of several windows was opened, but does not expire.
--
-- Most hits are one, on a window that is active. So what opens windows comes after it, where it costs
-- such a hit nothing.
local call, most = redis.call, 9007199254740992
local time = tonumber(ARGV[1])
if not time then
  local now = call('TIME')
  time = now[1] * 1000000 + now[2]
end

-- add adds to the active window. It returns nothing if there is none.
local function add(key, field, scale, n)
  local value = call('HGET', key, field)
  if not value then return end
  if #value ~= 24 then error('not a window: ' .. value) end
  local before, start, id = struct.unpack('<ddd', value)
  if not (before >= 0 and before <= most and start - start == 0) then error('not a window: ' .. value) end
  if time >= start + scale or start >= time + scale then return end
  local count = before + n
  if count > most then count = most end
  call('HSET', key, field, struct.pack('<ddd', count, start, id))
  return before, start, id
end

if #KEYS == 1 then
  local before, start, id = add(KEYS[1], ARGV[4], ARGV[5], ARGV[6])
  if before then return {time, before, start, id} end
end

local written -- whether a window was opened
local function open(key, field, scale, n)
  if call('HLEN', key) >= 16 then return -1, 0, 0 end
  local start, id = time, tonumber(ARGV[3])
  if string.byte(field) == 97 then start = time - time % scale end
  call('HSET', key, field, struct.pack('<ddd', n, start, id))
  written = true
  local left = math.ceil((start + scale - time) / 1000) + ARGV[2]
  if call('PTTL', key) < left then call('PEXPIRE', key, string.format('%.0f', left)) end
  return 0, start, id
end

local function addOrOpen(key, field, scale, n)
  local before, start, id = add(key, field, scale, n)
  if before then return before, start, id end
  return open(key, field, scale, n)
end

if #KEYS == 1 then return {time, open(KEYS[1], ARGV[4], ARGV[5], ARGV[6])} end

-- Some errors concern all windows, such as READONLY or OOM. If all have the same one, it is that of the
-- script.
local reason, same = nil, true
local result, i, arg = {time}, 1, 4
while i <= #KEYS do
  local field, scale, n = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  for j = i, tonumber(ARGV[arg + 3]) or #KEYS do
    written = false
    local ok, before, start, id = pcall(addOrOpen, KEYS[j], field, scale, n)
    if not ok then
      local text = type(before) == 'table' and before.err or before
      reason = reason or text
      same = same and reason == text and not written
      before, start, id = written and -2 or -1, 0, 0
    else
      same = false
    end
    local at = 3 * j
    result[at - 1], result[at], result[at + 1] = before, start, id
    i = j + 1
  end
  arg = arg + 4
end
if same then return redis.error_reply(reason) end
return result
