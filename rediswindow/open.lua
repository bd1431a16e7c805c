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

-- Some errors concern all windows, such as READONLY or OOM. If all have the same one, it is that of the
-- script.
local reason, same = nil, true
local result, i, arg = {time}, 1, 5
while i <= #KEYS do
  local scale, increment = ARGV[arg], ARGV[arg + 1]
  for j = i, tonumber(ARGV[arg + 2]) or #KEYS do
    written = false
    local ok, before, start, id = pcall(addOrOpen, KEYS[j], scale, increment)
    if not ok then
      local text = type(before) == 'table' and before.err or before
      reason = reason or text
      same = same and reason == text and not written
      before, start, id = written and -2 or -1, 0, 0
    else
      same = false
    end
    local at = 3 * j
    result[at - 1], result[at], result[at + 1] = before, start, id
    i = j + 1
  end
  arg = arg + 3
end
if same then return redis.error_reply(reason) end
return result
