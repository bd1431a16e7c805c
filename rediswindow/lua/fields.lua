-- Returns what the hash KEYS[1] has of limits: max, holds and the name of the field of each state, one a line. See
-- windows.lua.
local all, lines = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  if #all[i + 1] == 64 and string.find(all[i], '^[abcflw]%d') then
    local _, max, holds = struct.unpack('<ddd', all[i + 1])
    if max >= 0 and max < 2 ^ 53 and holds >= 0 and holds < 2 ^ 53 then -- others are no windows
      lines[#lines + 1] = string.format('%.0f %.0f ', max, holds) .. all[i]
    end
  end
end
return table.concat(lines, '\n')
