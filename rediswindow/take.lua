-- KEYS: the hash of each take. ARGV: time or '', aligned, grace, ID of windows that open, and then
-- scale, limit and n of each take.
-- Makes all takes if all windows have room for them. Returns whether it did, the time, and for each
-- take count, start, last update and ID of its active window, or a count of -1 if there is none.
local time, granted, windows = now(ARGV[1]), 1, {}
local function name(i) return KEYS[i] .. ' ' .. ARGV[3 * i + 2] end
for i = 1, #KEYS do
  local w = windows[name(i)]
  if not w then
    w = {count = 0, taken = 0}
    local value = call('HGET', KEYS[i], ARGV[3 * i + 2])
    if value then
      local count, start, updated, id = parse(value, tonumber(ARGV[3 * i + 2]), time)
      if count then w.count, w.start, w.updated, w.id = count, start, updated, id end
    end
    windows[name(i)] = w
  end
  w.taken = w.taken + tonumber(ARGV[3 * i + 4])
end
for i = 1, #KEYS do
  local w = windows[name(i)]
  if w.count + w.taken > tonumber(ARGV[3 * i + 3]) then granted = 0 end
end
local result = {granted, time}
for i = 1, #KEYS do
  local w, field = windows[name(i)], ARGV[3 * i + 2]
  if granted == 1 and w.taken > 0 then
    w.count, w.updated = w.count + w.taken, time
    if w.start then
      write(KEYS[i], field, w.count, w.start, time, w.id)
    else
      w.start, w.id = open(KEYS[i], field, w.count, time, ARGV[2], ARGV[3], ARGV[4]), tonumber(ARGV[4])
    end
    w.taken = 0
  end
  local at = 4 * i - 2
  if w.start then
    result[at + 1], result[at + 2], result[at + 3], result[at + 4] = w.count, w.start, w.updated, w.id
  else
    result[at + 1], result[at + 2], result[at + 3], result[at + 4] = -1, 0, 0, 0
  end
end
return result
