-- KEYS: the hash of each take. ARGV: time or '', grace or '' if nothing is taken, and then the
-- arguments of each take, which begin with the field. No two takes have the same key and field.
-- Makes all takes if all of them fit. Returns whether they do, the time, and for each take whether it
-- fits, and what is stored then.
local states, result, at = {}, {1, time}, 3
for i = 1, #KEYS do
  local s = load(KEYS[i], ARGV[at])
  states[i], s.at, s.fits = s, at, 1
  if not s.algorithm.fits(s, at) then s.fits, result[1] = 0, 0 end
  at = at + s.algorithm.width
end
for i = 1, #KEYS do
  local s = states[i]
  if result[1] == 1 and grace ~= '' and s.algorithm.take(s, s.at) then store(s) end
  result[#result + 1] = s.fits
  s.algorithm.describe(s, result)
end
return result
