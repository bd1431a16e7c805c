-- KEYS: the hash. ARGV: scale, time or '', grace, epoch, place, n.
-- Gives n of a take back. Returns whether it did.
local s = load(KEYS[1], ARGV[1], now(ARGV[2]))
local n = tonumber(ARGV[6])
if not active(s) or s.epoch ~= tonumber(ARGV[4]) then return {0} end
if n > 0 then
  if not giveback(s, tonumber(ARGV[5]), n) then return {0} end
  store(s, ARGV[3])
end
return {1}
