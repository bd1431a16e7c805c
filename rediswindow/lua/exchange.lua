-- Makes claims on places in flight. KEYS are the birth, and the hash of each claim. ARGV are the
-- time, or nothing for that of the server; 1 if a slot without a record may be as old as the server; how many
-- milliseconds a hash lives on after all that it has is over; the prefix of channels, and the channel of the caller;
-- and for each process that makes claims, one after the other: p and the process, how many claims it makes, and these in
-- binary form: sequence number, lease in microseconds, what it holds, under which Max, and the number of runs of equal
-- wants, then of each run how many there are, N, Max, and 1 if they wait. Claims without a process have nothing else.
-- Times are in microseconds since 1970.
--
-- Fields of a hash, in binary form:
--   s            the state: sum of places held, largest Max under which they are, token of the last grant, when the
--                first entry ends, when the hash expires, 1 if somebody waits
--   p<process>   an entry: places held, sequence number, end
--   q            the line, as MessagePack: process, channel, N, Max, wants, end, woken of each process
--
-- Replies with numbers, as doubles. For each claim: 0, 1 if it is late, or 2 if its places are lost; places used; wants that wait;
-- in which time places come back, or 0; the first token; how many wants of each run are granted, the first ones.
local expand, call, unpack, pack = unpack, redis.call, struct.unpack, struct.pack
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local extra, channels, channel = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local max, min = math.max, math.min
local huge, state, none = 9007199254740991, '<dddddd', {}

-- When the data set was created. A server that was started again may have lost what it had not saved, and one that
-- has become the primary what was not replicated, so that another server is another birth.
local function born()
  local run, info = '', redis.pcall('INFO', 'server')
  if type(info) == 'string' then
    local _, at = string.find(info, 'run_id:', 1, true)
    run = at and string.match(info, '^%x+', at + 1) or ''
  end
  local record = call('GET', KEYS[1])
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

local replies, size, birth = {}, 0, nil
local function reply(code, sum, waits, next, token)
  replies[size + 1], replies[size + 2], replies[size + 3] = code, sum, waits
  replies[size + 4], replies[size + 5] = next, token
  size = size + 5
end

-- Answers a claim that only asks.
local function ask(key)
  local v = call('HMGET', key, 's', 'q')
  if not v[1] then return reply(0, 0, 0, 0, 0) end
  local sum, _, _, first = unpack(state, v[1])
  if now >= first then sum = sweep(key) end
  reply(0, sum, v[2] and waiting(cmsgpack.unpack(v[2])) or 0, 0, 0)
end

-- Makes the claim of a process, whose claims are packed.
local field, packed, at
local function claim(key)
  local seq, lease, held, most, runs, run = unpack('<ddddd', packed, at)
  at = run + 32 * runs
  local v = call('HMGET', key, 's', field)
  local sum, limit, token, first, expires, waits = 0, 0, 0, huge, 0, 0
  if v[1] then sum, limit, token, first, expires, waits = unpack(state, v[1]) end
  if now >= first then
    local over
    sum, first, over = sweep(key)
    for i = 1, #over, 1000 do call('HDEL', key, expand(over, i, min(i + 999, #over))) end
  end
  local known, last = 0, 0
  if v[2] then
    local ends
    known, last, ends = unpack('<ddd', v[2])
    if ends <= now then known, last = 0, 0 end
  end
  local line = none
  if waits == 1 then line = cmsgpack.unpack(call('HGET', key, 'q')) end
  if seq <= last and known > 0 then return reply(1, sum, waiting(line), 0, 0) end

  local code = 0
  if sum == 0 then limit = 0 end
  most = max(most, limit)
  if held > known and sum - known + held > most then
    code, held = 2, 0
  elseif held > 0 then
    limit = most
  end
  sum = sum - known + held

  birth = birth or born()
  local grace = birth + lease - now
  while line[1] and line[1][6] <= now do table.remove(line, 1) end
  local reserved = 0
  if line[1] and 'p' .. line[1][1] ~= field then reserved = line[1][3] end

  -- Decide the wants.
  local granted, wait_n, wait_max, wait_count = 0, nil, nil, 0
  for r = 1, runs do
    local count, n, most, wait
    count, n, most, wait, run = unpack('<dddd', packed, run)
    local i = 0
    while i < count and grace <= 0 and not wait_n and sum + n + reserved <= most do
      i, sum, held = i + 1, sum + n, held + n
    end
    replies[size + 5 + r] = i
    if i > 0 then granted, limit = granted + i, max(limit, most) end
    if i < count and wait == 1 then
      if not wait_n then wait_n, wait_max = n, most end
      wait_count = wait_count + count - i
    end
  end
  if granted > 0 then token = max(token + 1, now) + granted - 1 end

  -- Keep the process in line as long as wants of it wait.
  if wait_n or line[1] then
    local place
    for i = 1, #line do
      if 'p' .. line[i][1] == field then
        place = i
        break
      end
    end
    if place and (not wait_n or granted > 0 or line[place][6] <= now) then
      table.remove(line, place)
      place = nil
    end
    if wait_n then
      if line == none then line = {} end
      line[place or #line + 1] = { string.sub(field, 2), channel, wait_n, wait_max, wait_count, now + lease / 4, 0 }
    end
  end

  -- Wake the process that is first in line.
  local head = line[1]
  if head and sum + head[3] <= head[4] and head[7] == 0 then
    head[7] = 1
    if head[2] ~= '' then redis.pcall('PUBLISH', channels .. head[2], key .. ' ' .. head[1]) end
  end

  -- An entry that holds nothing is removed when it is over, as others are.
  local waited, entry = waits, held > 0 or v[2]
  waits = head and 1 or 0
  if entry then first = min(first, now + lease) end
  local fresh = expires < now + lease
  if fresh then expires = now + 2 * lease end
  local new = pack(state, sum, limit, token, first, expires, waits)
  if entry then
    call('HSET', key, 's', new, field, pack('<ddd', held, seq, now + lease))
  else
    call('HSET', key, 's', new)
  end
  if head then
    call('HSET', key, 'q', cmsgpack.pack(line))
  elseif waited == 1 then
    call('HDEL', key, 'q')
  end
  if fresh then call('PEXPIRE', key, string.format('%.0f', 2 * lease / 1000 + extra)) end

  local next = 0
  if grace > 0 then
    next = grace
  elseif sum > 0 and first < huge then
    next = first - now
  end
  reply(code, sum, head and waiting(line) or 0, next, token - granted + 1)
  size = size + runs
end

local i, a = 2, 6
while i <= #KEYS do
  local answer, last = claim, i + ARGV[a + 1] - 1
  field, packed, at = ARGV[a], ARGV[a + 2], 1
  a = a + 3
  if field == '' then answer, a = ask, a - 1 end
  for i = i, last do
    -- An error of one of several claims is its own: what the others have done stays done. The client makes it again alone.
    if #KEYS == 2 then
      answer(KEYS[i])
    elseif not pcall(answer, KEYS[i]) then
      reply(3, 0, 0, 0, 0)
    end
  end
  i = last + 1
end
-- As many numbers at a time as there is room for on the stack of Lua.
local parts = {}
for i = 1, size, 1000 do
  local to = min(i + 999, size)
  parts[#parts + 1] = pack('<' .. string.rep('d', to - i + 1), expand(replies, i, to))
end
return table.concat(parts)
