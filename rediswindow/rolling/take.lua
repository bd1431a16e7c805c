-- KEYS: the hash of each take. ARGV: time or '', grace or '' if nothing is taken, and then the
-- arguments of each take. No two takes have the same key and scale.
-- Makes all takes if all of them fit. Returns whether they do, the time, and for each take whether it
-- fits, and what is stored then.
local time, states, result = now(ARGV[1]), {}, {1, 0}
result[2] = time
for i = 1, #KEYS do
  local at = (i - 1) * width + 3
  local s = load(KEYS[i], ARGV[at], time)
  states[i] = s
  s.fits = fits(s, at) and 1 or 0
  if s.fits == 0 then result[1] = 0 end
end
for i = 1, #KEYS do
  local s = states[i]
  if result[1] == 1 and ARGV[2] ~= '' and take(s, (i - 1) * width + 3) then store(s, ARGV[2]) end
  result[#result + 1] = s.fits
  describe(s, result, true)
end
return result
