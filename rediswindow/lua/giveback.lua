-- KEYS: the hash. ARGV: time or '', grace, field, epoch or ID, place, n, whether a window that is empty
-- then is removed ('1').
-- Gives n of a take back. Returns whether it did.
local s = load(KEYS[1], ARGV[3])
local n = tonumber(ARGV[6])
if not s.algorithm.active(s) or s.epoch ~= tonumber(ARGV[4]) then return {0} end
if n > 0 then
  if not s.algorithm.giveback(s, tonumber(ARGV[5]), n, ARGV[7] == '1') then return {0} end
  store(s)
end
return {1}
