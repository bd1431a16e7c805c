-- KEYS: the hash. ARGV: scale, time or '', ID, n, whether a window that is empty then is removed.
-- Gives n back to the active window if it has the ID. Returns whether it did.
local value = call('HGET', KEYS[1], ARGV[1])
if not value then return {0} end
local count, start, updated, id = parse(value, tonumber(ARGV[1]), now(ARGV[2]))
if not count or id == 0 or id ~= tonumber(ARGV[3]) or count >= most then return {0} end
count = math.max(count - tonumber(ARGV[4]), 0)
if count == 0 and ARGV[5] == '1' then
  call('HDEL', KEYS[1], ARGV[1])
else
  write(KEYS[1], ARGV[1], count, start, updated, id)
end
return {1}
