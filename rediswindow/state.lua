-- What is stored of a window: a value of 33 bytes. The first byte is 1, and then come count, start, last
-- update and ID as doubles, little-endian. Times are in microseconds since 1970. The ID is a random
-- number.
--
-- Versions up to 0.1 stored "<count> <start> <last update> <ID>" or, earlier, the same without an ID,
-- which is 0 then.
local call, pack, unpack, form = redis.call, struct.pack, struct.unpack, '<Bdddd'

-- The largest count: it exceeds every limit, and doubles are exact up to it.
local most = 9007199254740992

-- read returns count, start, last update and ID.
local function read(value)
  if #value == 33 then
    local version, count, start, updated, id = unpack(form, value)
    local valid = count >= 0 and count <= most and start - start == 0 -- not NaN or infinite
    if version == 1 and valid then return count, start, updated, id end
  end
  local count, start, updated, id = string.match(value, '^(%d+) (%-?%d+) (%-?%d+) ?(%d*)$')
  if not count then error('not a window: ' .. value) end
  return tonumber(count), tonumber(start), tonumber(updated), tonumber(id) or 0
end

-- packed returns what is stored of a window.
local function packed(count, start, updated, id) return pack(form, 1, count, start, updated, id) end
