-- KEYS: the hash. ARGV: time or '', grace, scales (none: all scales of the hash).
-- Forgets the hits of the scales. Returns how many of them had hits, as the only element. What is
-- left has no hits, and is kept as long as the hash would have lived: so what was taken before is not
-- given back later.
local time, deleted = now(ARGV[1]), 0
local fields, first = ARGV, 3
if #ARGV < 3 then fields, first = redis.call('HKEYS', KEYS[1]), 1 end
for i = first, #fields do
  if tonumber(fields[i]) then -- and not a part of a log
    local s = load(KEYS[1], fields[i], time)
    if active(s) then
      deleted = deleted + 1
      clear(s)
      store(s, ARGV[2])
    end
  end
end
return {deleted}
