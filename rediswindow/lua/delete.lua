-- KEYS: the hash. ARGV: time or '', grace, 'field' and a field, or 'scales' and scales in microseconds
-- (none: all).
-- Forgets what the field or the limits of these scales have counted. Returns how many of them had
-- something, as the only element. What is left of rolling algorithms has no hits, and is kept as long as
-- the hash would have lived: so what was taken before is not given back later.
local deleted, fields, scales = 0, {ARGV[4]}, {}
if ARGV[3] == 'scales' then
  fields = call('HKEYS', KEYS[1])
  for i = 4, #ARGV do scales[ARGV[i]] = true end
end
for i = 1, #fields do
  if ARGV[3] == 'field' or #ARGV == 3 or scales[string.match(fields[i], '^%l(%d+)')] then
    local s = load(KEYS[1], fields[i])
    if s and s.algorithm.active(s) then
      deleted = deleted + 1
      s.algorithm.clear(s)
      store(s)
    end
  end
end
return {deleted}
