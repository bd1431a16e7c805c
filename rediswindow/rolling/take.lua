-- KEYS: the hash of each take. ARGV: time or '', grace or '' if nothing is taken, and then the
-- arguments of each take. No two takes have the same key and scale.
-- Makes all takes if all of them fit. Returns whether they do, the time, and what is stored then.
local time, states, result = now(ARGV[1]), {}, {1, 0}
result[2] = time
for i = 1, #KEYS do
  local at = (i - 1) * width + 3
  local s = load(KEYS[i], ARGV[at], time)
  states[i] = s
  if not fits(s, at) then result[1] = 0 end
end
for i = 1, #KEYS do
  if result[1] == 1 and ARGV[2] ~= '' and take(states[i], (i - 1) * width + 3) then save(states[i], ARGV[2]) end
  describe(states[i], result, true)
end
return result
