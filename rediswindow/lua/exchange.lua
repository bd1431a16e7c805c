-- Makes claims on places in flight. KEYS are the birth, and the hash of each claim. ARGV are the
-- time, or nothing for that of the server; 1 if a slot without a record may be as old as the server; how many
-- milliseconds a hash lives on after all that it has is over; the prefix of channels, and the channel of the caller;
-- and for each process that makes claims, one after the other: p and the process, how many claims it makes, and these in
-- binary form: sequence number, lease in microseconds, what it holds, under which Max, and the number of runs of equal
-- wants, then of each run how many there are, below 0 if they wait, N and Max. Claims without a process have nothing else.
-- Times are in microseconds since 1970.
--
-- Fields of a hash, in binary form:
--   s            the state: sum of places held, largest Max under which they are, token of the last grant, when the
--                first entry ends, when the hash expires, 1 if somebody waits
--   p<process>   an entry: places held, sequence number, end
--   q            the line, as MessagePack: process, channel, N, Max, wants, end, woken of each process
--
-- Replies with the time, the birth or 0, and the number of bytes that follow, as doubles. The bytes are, for each claim:
-- 0, 1 if it is late, 2 if its places are lost, 3 if it has failed, or 4 if it only asks; 8 more if wants wait. Then, if it is
-- 0 or 2 without these, how many wants of each run are granted, the first ones. Behind the bytes is, for each claim, if it is
-- 0 or 2, the state, and how many wants wait, if any do; if it is 1 or 4, places used and wants that wait, as doubles.
local expand, call, unpack, pack = unpack, redis.call, struct.unpack, struct.pack
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local extra, channels, channel = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local min, huge, state = math.min, 9007199254740991, '<dddddd'
local record = call('GET', KEYS[1])

-- When the data set was created. A server that was started again may have lost what it had not saved, and one that
-- has become the primary what was not replicated, so that another server is another birth.
local function born()
  local run, info = '', redis.pcall('INFO', 'server')
  if type(info) == 'string' then
    local _, at = string.find(info, 'run_id:', 1, true)
    run = at and string.match(info, '^%x+', at + 1) or ''
  end
  local birth = now
  if record then
    local of, at = string.match(record, '^(%x*) (%d+)$')
    if of == run and tonumber(at) <= now then return tonumber(at) end
  elseif ARGV[2] == '1' and run ~= '' then
    birth = now - ((tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) or 0) + 1) * 1000000
  end
  call('SET', KEYS[1], run .. ' ' .. string.format('%.0f', birth))
  return birth
end

-- Returns the sum, and the end of the first entry, of a hash without the entries that are over, and these.
local function sweep(key)
  local all, sum, first, over = call('HGETALL', key), 0, huge, {}
  for i = 1, #all, 2 do
    if string.byte(all[i]) == 112 then
      local held, _, ends = unpack('<ddd', all[i + 1])
      if ends <= now then
        over[#over + 1] = all[i]
      else
        sum, first = sum + held, min(first, ends)
      end
    end
  end
  return sum, first, over
end

-- Returns how many wants of a line wait.
local function waiting(line)
  local n = 0
  for i = 1, #line do
    if line[i][6] > now then n = n + line[i][5] end
  end
  return n
end

-- The bytes of the reply, what is behind them from the second element on, and how many there are of both.
local bytes, size, values, count = {}, 0, {}, 1
-- The claim that is made, the process that makes it, its claims, and where the next one begins; when the data set was created.
local making, field, packed, at, birth

-- Answers a claim that has changed nothing.
local function answer(byte, sum, waits)
  size, count = size + 1, count + 1
  bytes[size], values[count] = byte, pack('<dd', sum, waits)
end

-- Answers claims that only ask, on KEYS from one to another.
local function ask(from, to)
  for i = from, to do
    making = i
    local v = call('HMGET', KEYS[i], 's', 'q')
    local sum, first, _ = 0, huge, nil
    if v[1] then sum, _, _, first = unpack(state, v[1]) end
    if now >= first then sum = sweep(KEYS[i]) end
    answer(4, sum, v[2] and waiting(cmsgpack.unpack(v[2])) or 0)
  end
end

-- Keeps the process in line as long as wants of it wait: so many, of which the first is for n of most. It goes to the end
-- of the line if something was granted. Then the process that is first in line is woken, if there is room.
local function queue(key, line, wants, n, most, granted, lease, sum)
  local place
  for i = 1, #line do
    if 'p' .. line[i][1] == field then
      place = i
      break
    end
  end
  if place and (wants == 0 or granted > 0 or line[place][6] <= now) then
    table.remove(line, place)
    place = nil
  end
  if wants > 0 then
    line[place or #line + 1] = { string.sub(field, 2), channel, n, most, wants, now + lease / 4, 0 }
  end
  local head = line[1]
  if head and sum + head[3] <= head[4] and head[7] == 0 then
    head[7] = 1
    if head[2] ~= '' then redis.pcall('PUBLISH', channels .. head[2], key .. ' ' .. head[1]) end
  end
end

-- Makes claims of a process on KEYS from one to another. Most find nobody in line.
local function claim(from, to)
  for i = from, to do
    making = i
    local key = KEYS[i]
    local seq, lease, held, most, runs, run = unpack('<ddddH', packed, at)
    at = run + 24 * runs
    local v = call('HMGET', key, 's', field)
    local entry = v[2]
    local sum, limit, token, first, expires, waits = 0, 0, 0, huge, 0, 0
    if v[1] then sum, limit, token, first, expires, waits = unpack(state, v[1]) end
    if now >= first then
      local over
      sum, first, over = sweep(key)
      for i = 1, #over, 1000 do call('HDEL', key, expand(over, i, min(i + 999, #over))) end
    end
    local known, last, ends = 0, 0, 0
    if entry then
      known, last, ends = unpack('<ddd', entry)
      if ends <= now then known, last = 0, 0 end
    end
    local line = waits == 1 and cmsgpack.unpack(call('HGET', key, 'q'))
    if seq <= last and known > 0 then
      answer(1, sum, line and waiting(line) or 0)
    else
      local byte = 0
      if sum == 0 then limit = 0 end
      if most < limit then most = limit end
      if held > known and sum - known + held > most then
        byte, held = 2, 0
      elseif held > 0 then
        limit = most
      end
      sum = sum - known + held

      local reserved = 0
      if line then
        while line[1] and line[1][6] <= now do table.remove(line, 1) end
        if line[1] and 'p' .. line[1][1] ~= field then reserved = line[1][3] end
      end

      -- Decide the wants. Claims that only give back need not know the birth: to ask for it takes long.
      if not birth and (held > 0 or runs > 0 or not record) then birth = born() end
      local grace = birth and birth + lease - now or 0
      local granted, wants, wants_n, wants_most = 0, 0, nil, nil
      for r = size + 2, size + 1 + runs do
        local equal, n, most, wait
        equal, n, most, run = unpack('<ddd', packed, run)
        if equal < 0 then equal, wait = -equal, true end
        local fit = 0
        if grace <= 0 and wants == 0 then
          while fit < equal and sum + n + reserved <= most do
            fit, sum, held = fit + 1, sum + n, held + n
          end
        end
        bytes[r] = fit
        if fit > 0 then
          granted = granted + fit
          if limit < most then limit = most end
        end
        if fit < equal and wait then
          if wants == 0 then wants_n, wants_most = n, most end
          wants = wants + equal - fit
        end
      end
      if granted > 0 then
        if token < now then token = now - 1 end
        token = token + granted
      end
      if wants > 0 or line then
        line = line or {}
        queue(key, line, wants, wants_n, wants_most, granted, lease, sum)
      end

      -- An entry that holds nothing is removed when it is over, as others are.
      ends = now + lease
      entry = entry or held > 0
      if entry and ends < first then first = ends end
      local fresh = expires < ends
      if fresh then expires = ends + lease end
      local new = pack(state, sum, limit, token, first, expires, line and line[1] and 1 or 0)
      if entry then
        call('HSET', key, 's', new, field, pack('<ddd', held, seq, ends))
      else
        call('HSET', key, 's', new)
      end
      if line and line[1] then
        call('HSET', key, 'q', cmsgpack.pack(line))
        byte, new = byte + 8, new .. pack('<d', waiting(line))
      elseif waits == 1 then
        call('HDEL', key, 'q')
      end
      if fresh then call('PEXPIRE', key, string.format('%.0f', 2 * lease / 1000 + extra)) end
      bytes[size + 1] = byte
      size, count = size + 1 + runs, count + 1
      values[count] = new
    end
  end
end

local i, a = 2, 6
while i <= #KEYS do
  local make, last = claim, i + ARGV[a + 1] - 1
  field, packed, at = ARGV[a], ARGV[a + 2], 1
  a = a + 3
  if field == '' then make, a = ask, a - 1 end
  if #KEYS == 2 then
    make(i, last)
  else
    -- An error of one of several claims is its own: what the others have done stays done. The client makes it again alone.
    while not pcall(make, i, last) do
      size = size + 1
      bytes[size] = 3
      i = making + 1
    end
  end
  i = last + 1
end
-- As many bytes at a time as there is room for on the stack of Lua.
local head = pack('<ddd', now, birth or 0, size)
for i = 1, size, 1000 do head = head .. string.char(expand(bytes, i, min(i + 999, size))) end
values[1] = head
return table.concat(values)
