-- What all scripts share that open or look for windows. The windows of a key are one hash. Each field is
-- a window: its name is the scale.

-- parse returns count, start, last update and ID of a window, or nil if the window is not active. A
-- window that starts a scale or more in the future is over, as it is in memory: the clock was set back,
-- and a key would be denied until it gets there.
local function parse(value, scale, time)
  local count, start, updated, id = read(value)
  if time < start + scale and start < time + scale then return count, start, updated, id end
end

-- prune removes windows that are over.
local function prune(key, time)
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    if not parse(all[i + 1], tonumber(all[i]), time) then call('HDEL', key, all[i]) end
  end
end

local written -- whether write was called
local function write(key, field, count, start, time, id)
  call('HSET', key, field, packed(count, start, time, id))
  written = true
end

-- open writes a new window to a field and returns its start. The hash expires grace milliseconds
-- after the end of its last window. When the number of fields has doubled, from 16 on, open removes
-- the fields of windows that are over.
local function open(key, field, count, time, aligned, grace, id)
  local scale, start = tonumber(field), time
  if aligned == '1' then start = time - time % scale end
  local fields = call('HLEN', key)
  if fields >= 16 and bit.band(fields, fields - 1) == 0 and call('HEXISTS', key, field) == 0 then
    prune(key, time)
  end
  write(key, field, count, start, time, id)
  local left = math.ceil((start + scale - time) / 1000) + tonumber(grace)
  if call('PTTL', key) < left then call('PEXPIRE', key, string.format('%.0f', left)) end
  return start
end

