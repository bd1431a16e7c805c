-- Makes claims on places in flight. The same state machine, in the same order, is internal/ledger/claim.go. There, the
-- line is part of entries, known and last are held and seq of before, ahead is head, unless that is the process, and
-- wants are decided one by one.
--
-- KEYS are the birth, and the hash of each claim. ARGV are the time, or nothing for that of the server; the prefix of
-- channels, and the channel of the caller; and for each claim: the process, and as doubles the sequence number,
-- lease in microseconds, what it holds, under which Max, 1 if it is strict, and then of each run of equal wants how many
-- there are, N, Max, and 1 if they wait. The process is empty if it only asks. Times are in microseconds since 1970.
--
-- Fields of a hash, in binary form:
--   s            the state: sum of places held, largest Max under which they are, token of the last grant, when the
--                first entry ends, when the hash expires, 1 if somebody waits
--   p<process>   an entry: places held, sequence number, end
--   q            the line, as MessagePack: process, channel, N, Max, wants, end, woken of each process
--
-- Replies with doubles: when the data set was created or 0, and for each claim: what is said of it, the sum, how many
-- wants wait, in what time the first entry ends, or 0, for how long nothing is granted, and of each run how many are
-- granted, the first ones, and the token of the first. It says 0, 1 if the claim is late, 2 if its places are lost, 3 if it
-- has failed, or 4 if the store did not know all of its places. Claims of which it says 1 or 3 are not made, and neither
-- are those that only ask.
local call, match, min, max = redis.call, string.match, math.min, math.max
local decode, encode = struct.unpack, struct.pack
local huge, state_format = 9007199254740991, '<dddddd'
local PROCESS, CHANNEL, N, MAX, WANTS, ENDS, WOKEN = 1, 2, 3, 4, 5, 6, 7 -- of those in line
-- How many milliseconds a hash lives on after all that it has is over.
local extra = ARGV[1] == '' and 1000 or 3600000
local channels, channel = ARGV[2], ARGV[3]
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local record = call('GET', KEYS[1])
local birth, verified = record and tonumber(match(record, '%d+$')) or 0, false

-- Finds out when the data set was created. A server that was started again may have lost what it had not saved, and
-- one that has become the primary what was not replicated: it is another data set then. A server without a birth is as
-- old as it has been up if it was never a replica, and has run no command that loses data, takes a slot whose data are
-- lost, or hides that it did. Its uptime may be a second too long.
local losing = { 'cmdstat_flush', 'cmdstat_swapdb', 'cluster|delslots', 'cluster|setslot', 'config|resetstat' }
local function verify()
  local function info(section)
    local text = redis.pcall('INFO', section)
    return type(text) == 'string' and text or ''
  end
  local server, replication = info('server'), info('replication')
  local identity = (match(server, 'run_id:(%x+)') or '') .. (match(replication, 'master_replid:(%x+)') or '')
  verified = true
  if record and match(record, '^%x*') == identity and birth <= now then return end
  birth = now
  if not record and ARGV[1] == '' and match(replication, 'master_replid2:0+%s') then
    local uptime, commands = tonumber(match(server, 'uptime_in_seconds:(%d+)')) or 0, info('commandstats')
    local kept = commands ~= ''
    for _, name in ipairs(losing) do
      kept = kept and not string.find(commands, name, 1, true)
    end
    if kept then birth = now - max(uptime - 1, 0) * 1000000 end
  end
  record = identity .. ' ' .. string.format('%.0f', birth)
  call('SET', KEYS[1], record)
end

-- Returns the sum, and the end of the first entry, of a hash without the entries that are over, and these.
local function expire(key)
  local all, sum, first, ended = call('HGETALL', key), 0, huge, {}
  for i = 1, #all, 2 do
    if string.byte(all[i]) == 112 then
      local held, _, ends = decode('<ddd', all[i + 1])
      if ends <= now then
        ended[#ended + 1] = all[i]
      else
        sum, first = sum + held, min(first, ends)
      end
    end
  end
  return sum, first, ended
end

-- Returns how many wants of a line wait.
local function waiting(line)
  local n = 0
  for i = 1, #line do
    if line[i][ENDS] > now then n = n + line[i][WANTS] end
  end
  return n
end

-- The hash of a claim, the field of the process, and the rest of the claim.
local key, field, claim

-- Answers a claim that only asks.
local function ask()
  local v = call('HMGET', key, 's', 'q')
  local sum, first, _ = 0, huge, nil
  if v[1] then sum, _, _, first = decode(state_format, v[1]) end
  if now >= first then sum = expire(key) end
  return encode('<ddd', 0, sum, v[2] and waiting(cmsgpack.unpack(v[2])) or 0)
end

-- Makes a claim.
local function make()
  local seq, lease, held, most, strict, next_run = decode('<ddddd', claim)
  local v = call('HMGET', key, 's', field)
  local sum, limit, token, first, expires, waits = 0, 0, 0, huge, 0, 0
  if v[1] then sum, limit, token, first, expires, waits = decode(state_format, v[1]) end
  local before, entry, known, last, ended = sum, v[2], 0, 0, nil
  if now >= first then
    sum, first, ended = expire(key)
    for i = 1, #ended, 1000 do call('HDEL', key, unpack(ended, i, min(i + 999, #ended))) end
  end
  if entry then
    local held_before, seq_before, ends = decode('<ddd', entry)
    if ends > now then known, last = held_before, seq_before else entry = false end
  end
  local line = waits == 1 and cmsgpack.unpack(call('HGET', key, 'q')) or {}
  if seq <= last then return encode('<ddd', 1, sum, waiting(line)) end

  -- To ask for the identity of the server takes long. Strict claims do, unless they only give back: so the wait of a
  -- lease begins with the next renewal, and not when somebody wants a place. So do those that hold places that are not
  -- known: these may have been lost with the data. Others take the birth as it is.
  local has_wants = next_run < #claim
  if not verified and (held > known or has_wants and not record or strict == 1 and (has_wants or held > 0)) then
    verify()
  end

  -- Register what the process holds.
  local said = 0
  if sum == 0 then limit = 0 end
  most = max(most, limit)
  if held > known and strict == 1 and sum - known + held > most then
    said, held = 2, 0
  elseif held > known then
    said = 4
  end
  if held > 0 then limit = most end
  sum = sum - known + held

  local head = line[1] and line[1][PROCESS]
  while line[1] and line[1][ENDS] <= now do table.remove(line, 1) end

  -- Decide the wants.
  local ahead = line[1] and 'p' .. line[1][PROCESS] ~= field and line[1]
  local granted, wants, firstN, firstMax, grace = false, 0, nil, nil, strict == 1 and max(birth + lease - now, 0) or 0
  local grants = ''
  while next_run < #claim do
    local equal, n, under, wait, fit = 0, 0, 0, 0, 0
    equal, n, under, wait, next_run = decode('<dddd', claim, next_run)
    local reserved = ahead and ahead[MAX] >= under and ahead[N] or 0
    if grace == 0 and wants == 0 then fit = min(equal, max(math.floor((under - sum - reserved) / n), 0)) end
    if fit > 0 then
      granted = true
      sum, held = sum + fit * n, held + fit * n
      limit = max(limit, under)
      token = max(token, now - 1) + fit
    end
    if fit < equal and wait == 1 then
      if wants == 0 then firstN, firstMax = n, under end
      wants = wants + equal - fit
    end
    grants = grants .. encode('<dd', fit, token - fit + 1)
  end

  -- Keep the process in line as long as wants of it wait. It goes to the end if something was granted, and to another
  -- position if its first want has another Max: those with a larger one are first.
  local position
  for p = 1, #line do
    if 'p' .. line[p][PROCESS] == field then position = p end
  end
  local own = position and table.remove(line, position)
  if wants > 0 then
    if not own or granted or firstMax ~= own[MAX] or own[ENDS] <= now then
      position = #line + 1
      while position > 1 and line[position - 1][MAX] < firstMax do position = position - 1 end
    end
    table.insert(line, position, { string.sub(field, 2), channel, firstN, firstMax, wants, now + lease / 4, 0 })
  end

  -- Only what has changed what is free wakes the first in line, who has asked before.
  local w = line[1]
  if w and (sum < before or w[PROCESS] ~= head) and sum + w[N] <= w[MAX] and w[WOKEN] == 0
      and 'p' .. w[PROCESS] ~= field then
    w[WOKEN] = 1
    if w[CHANNEL] ~= '' then redis.pcall('PUBLISH', channels .. w[CHANNEL], key .. ' ' .. w[PROCESS]) end
  end

  -- Store the entry, the state and the line. The hash lives for at least as long as what was stored last.
  local ends = now + lease
  if held > 0 then first = min(first, ends) end
  local live = expires < ends
  if live then expires = ends + lease end
  local new = encode(state_format, sum, limit, token, first, expires, w and 1 or 0)
  -- A server without memory refuses HSET, but not in a script that has begun with HDEL: to give back or to renew needs
  -- no more memory.
  if held == 0 and entry then
    call('HDEL', key, field)
  elseif not has_wants then
    call('HDEL', key, '') -- which is no field
  end
  if held > 0 then
    call('HSET', key, 's', new, field, encode('<ddd', held, seq, ends))
  else
    call('HSET', key, 's', new)
  end
  if w then
    call('HSET', key, 'q', cmsgpack.pack(line))
  elseif waits == 1 then
    call('HDEL', key, 'q')
  end
  if live then call('PEXPIRE', key, string.format('%.0f', 2 * lease / 1000 + extra)) end
  return encode('<ddddd', said, sum, waiting(line), sum > 0 and first - now or 0, grace) .. grants
end

local reply = {''}
for i = 2, #KEYS do
  key, field, claim = KEYS[i], 'p' .. ARGV[2 * i], ARGV[2 * i + 1]
  local run, made, answer = field == 'p' and ask or make, true, nil
  if #KEYS == 2 then
    answer = run()
  else
    -- An error of one of several claims is its own: what the others have done stays done. The client makes it again
    -- alone.
    made, answer = pcall(run)
    if not made then answer = encode('<d', 3) end
  end
  local runs = max(#claim - 40, 0) / 32
  reply[i] = answer .. string.rep('\0', 40 + 16 * runs - #answer)
end
reply[1] = encode('<d', birth)
return table.concat(reply)
