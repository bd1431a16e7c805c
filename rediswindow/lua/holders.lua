-- Returns who holds places in flight or waits for them, of the hash KEYS[1] of exchange.lua: a line for each process
-- with its name, the places held, the wants that wait, and in how many microseconds its lease ends.
-- ARGV[1] is the time in microseconds since 1970, or nothing for that of the server.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local all, waits, lines = redis.call('HGETALL', KEYS[1]), {}, {}
local function add(process, held, ends)
  lines[#lines + 1] = string.format('%s %.0f %.0f %.0f', process, held, waits[process] or 0, ends)
  waits[process] = nil
end
local line = redis.call('HGET', KEYS[1], 'q')
for _, w in ipairs(line and cmsgpack.unpack(line) or {}) do
  if w[6] > now then waits[w[1]] = w[5] end
end
for i = 1, #all, 2 do
  if string.byte(all[i]) == 112 then
    local held, _, ends = struct.unpack('<ddd', all[i + 1])
    if held > 0 and ends > now then add(string.sub(all[i], 2), held, ends - now) end
  end
end
for process in pairs(waits) do add(process, 0, 0) end
return table.concat(lines, '\n')
