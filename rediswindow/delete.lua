-- KEYS: the hash. ARGV: time or '', scales (none: all scales of the hash).
-- Removes the windows of the scales. Returns how many of them were active, as the only element.
local key, time, deleted = KEYS[1], now(ARGV[1]), 0
local fields, first = ARGV, 2
if #ARGV < 2 then fields, first = call('HKEYS', key), 1 end
for i = first, #fields do
  local value = call('HGET', key, fields[i])
  if value then
    if parse(value, tonumber(fields[i]), time) then deleted = deleted + 1 end
    call('HDEL', key, fields[i])
  end
end
return {deleted}
