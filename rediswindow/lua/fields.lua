-- Returns what the hash KEYS[1] has of limits: stored_max, stored_capacity and the name of the field of each state,
-- one a line. See windows.lua.
local all, lines = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  if #all[i + 1] == 64 and string.find(all[i], '^[abcflw]%d') then
    local _, stored_max, stored_capacity = struct.unpack('<ddd', all[i + 1])
    local valid = stored_max >= 0 and stored_max < 2 ^ 53 and stored_capacity >= 0 and stored_capacity < 2 ^ 53
    if valid then -- others are no windows
      lines[#lines + 1] = string.format('%.0f %.0f ', stored_max, stored_capacity) .. all[i]
    end
  end
end
return table.concat(lines, '\n')
