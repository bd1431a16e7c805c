-- KEYS: the hash. ARGV: the scale, and then those of take.lua, for one take.
-- Does what take.lua does with one token bucket, in two thirds of the time: without functions and tables.
local call, second, scale, time = redis.call, 4294967296, ARGV[1], ARGV[2]
if time == '' then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
else
  time = tonumber(time)
end
local key, field, T = KEYS[1], ARGV[4], ARGV[5]
local full, part, epoch, live, start, back, at = time, 0, time % 65536, -4503599627370496, time, 0, time
local value = call('HGET', key, field)
if value then
  full, part, epoch, live, start, back, at = struct.unpack('<ddHdddd', value)
  local old = string.sub(value, 51)
  if at >= time + scale then return {2} end -- the clock was set back
  if full < time then full, part, old = time, 0 end
  if old ~= T then epoch, start, back = (epoch + 1) % 65536, time, 0 end
end
local latest = time + ARGV[6]
if full > latest or full == latest and part > tonumber(ARGV[7]) then return {0, time, 0, full, part, epoch, back} end
full, part = full + ARGV[8], part + ARGV[9]
if part >= second then full, part = full + 1, part - second end
local extend = full > live
if extend then
  if call('HLEN', key) >= 16 then return {2} end -- take.lua removes limits that are over
  live = full + scale
end
if at < time then at = time end
call('HSET', key, field, struct.pack('<ddHdddd', full, part, epoch, live, start, back, at) .. T)
if extend then
  local left = math.ceil((live - time) / 1000) + ARGV[3]
  if call('PTTL', key) < left then call('PEXPIRE', key, string.format('%.0f', left)) end
end
return {1, time, 1, full, part, epoch, back}
