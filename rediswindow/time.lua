-- now returns the given time, or the time of the server if it is '', in microseconds since 1970.
local function now(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
