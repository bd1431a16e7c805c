-- KEYS: the hash. ARGV: those of take.lua, for one take.
-- Does what take.lua does with one token bucket, in two thirds of the time: without functions and tables.
local call, second, time = redis.call, 4294967296, ARGV[1]
if time == '' then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
else
  time = tonumber(time)
end
local key, field, T = KEYS[1], ARGV[3], ARGV[4]
local full, part, epoch, live, start, back = time, 0, time % 65536, -4503599627370496, time, 0
local value = call('HGET', key, field)
if value then
  full, part, epoch, live, start, back = struct.unpack('<ddHddd', value)
  local old = string.sub(value, 43)
  -- take.lua has to convert the hits of Inc, and to find out whether the clock was set back.
  if old == '' or full >= time + 2 * field then return {2} end
  if full < time then full, part, old = time, 0 end
  if old ~= T then epoch, start, back = (epoch + 1) % 65536, time, 0 end
end
local latest = time + ARGV[5]
if full > latest or full == latest and part > tonumber(ARGV[6]) then return {0, time, 0, full, part, epoch, back} end
full, part = full + ARGV[7], part + ARGV[8]
if part >= second then full, part = full + 1, part - second end
local extend = full > live
if extend then
  if call('HLEN', key) >= 16 then return {2} end -- take.lua removes scales that are over
  live = full + field
end
call('HSET', key, field, struct.pack('<ddHddd', full, part, epoch, live, start, back) .. T)
if extend then
  local left = math.ceil((live - time) / 1000) + ARGV[2]
  if call('PTTL', key) < left then call('PEXPIRE', key, string.format('%.0f', left)) end
end
return {1, time, 1, full, part, epoch, back}
