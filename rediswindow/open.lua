-- The rest of the script of hits, which opens windows.
local function openWith(key, field, increment)
  return 0, open(key, field, tonumber(increment), time, ARGV[2], ARGV[3], ARGV[4]), tonumber(ARGV[4])
end

local function addOrOpen(key, field, increment)
  local before, start, id = add(key, field, increment)
  if before then return before, start, id end
  return openWith(key, field, increment)
end

if #KEYS == 1 then return {time, openWith(KEYS[1], ARGV[5], ARGV[6])} end
local result = {time}
for i = 1, #KEYS do
  local ok, before, start, id = pcall(addOrOpen, KEYS[i], ARGV[2 * i + 3], ARGV[2 * i + 4])
  if not ok then before, start, id = -1, 0, 0 end
  local at = 3 * i
  result[at - 1], result[at], result[at + 1] = before, start, id
end
return result
