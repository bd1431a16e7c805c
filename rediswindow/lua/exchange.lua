-- Makes claims on places in flight. The same state machine, in the same order, is internal/ledger/claim.go. There, the
-- line is part of entries, known and last_seq are held and seq of before, ahead is head, unless that is the
-- process, and wants are decided one by one.
--
-- KEYS: the birth, and the hash of each claim. ARGV: the time, or nothing for that of the server; the prefix of
-- channels; the channel of the caller; and for each claim two texts: the process, which is empty if it only asks, and
-- doubles:
--
--   seq         the sequence number
--   lease
--   held        what the process holds
--   held_max    the largest Max under which it does
--   strict      1 if the claim is
--   equal, n, under, wait
--               for each run of equal wants: how many there are, N, Max, and 1 if they wait
--
-- Returns doubles: the birth, which is when the data set was created, or 0, and for each claim:
--
--   said        MADE; or LATE: an earlier one has said more; or LOST: it is made, but what the process held is lost; or
--               FAILED; or FORGOTTEN: it is made, and the store did not know of all places. Claims that are LATE or
--               FAILED are not made, and those that only ask are MADE and change nothing
--   sum         of places held
--   waiting     how many wants wait
--   next        in which time the first entry ends, or 0
--   grace       for how long nothing is granted
--   fit, token  for each run: how many are granted, the first ones, and the token of the first
--
-- Fields of a hash, in binary form:
--
--   s           the state, six doubles: sum; limit, the largest Max under which places are held; token, that of the
--               last grant; first_end, when the first entry ends; expires, when the hash does; waits, 1 if somebody
--               waits
--   p<process>  an entry, three doubles: places held, sequence number, end
--   q           the line, as MessagePack: process, channel, N, Max, wants, end, woken of each process
--
-- Times are in microseconds, and those that are no length since 1970.
local call, match, min, max = redis.call, string.match, math.min, math.max
local decode, encode = struct.unpack, struct.pack
local huge, state_format = 9007199254740991, '<dddddd'
local MADE, LATE, LOST, FAILED, FORGOTTEN = 0, 1, 2, 3, 4
local PROCESS, CHANNEL, N, MAX, WANTS, ENDS, WOKEN = 1, 2, 3, 4, 5, 6, 7 -- of those in line
-- How many milliseconds a hash outlives what it has.
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
  local all, sum, first_end, ended = call('HGETALL', key), 0, huge, {}
  for i = 1, #all, 2 do
    if string.byte(all[i]) == 112 then
      local held, _, ends = decode('<ddd', all[i + 1])
      if ends <= now then
        ended[#ended + 1] = all[i]
      else
        sum, first_end = sum + held, min(first_end, ends)
      end
    end
  end
  return sum, first_end, ended
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
  local sum, first_end, _ = 0, huge, nil
  if v[1] then sum, _, _, first_end = decode(state_format, v[1]) end
  if now >= first_end then sum = expire(key) end
  return encode('<ddd', MADE, sum, v[2] and waiting(cmsgpack.unpack(v[2])) or 0)
end

-- Makes a claim.
local function make()
  local seq, lease, held, held_max, strict, next_run = decode('<ddddd', claim)
  local v = call('HMGET', key, 's', field)
  local sum, limit, token, first_end, expires, waits = 0, 0, 0, huge, 0, 0
  if v[1] then sum, limit, token, first_end, expires, waits = decode(state_format, v[1]) end
  local before, entry, known, last_seq, ended = sum, v[2], 0, 0, nil
  if now >= first_end then
    sum, first_end, ended = expire(key)
    for i = 1, #ended, 1000 do call('HDEL', key, unpack(ended, i, min(i + 999, #ended))) end
  end
  if entry then
    local held_before, seq_before, ends = decode('<ddd', entry)
    if ends > now then known, last_seq = held_before, seq_before else entry = false end
  end
  local line = waits == 1 and cmsgpack.unpack(call('HGET', key, 'q')) or {}
  if seq <= last_seq then return encode('<ddd', LATE, sum, waiting(line)) end

  -- To ask for the identity of the server takes long. Claims do that hold places that are not known, which may have
  -- been lost with the data, and the first of a birth. So do strict ones, unless they only give back: the wait of a
  -- lease begins with the next renewal, and not when somebody wants a place. Others take the birth as it is.
  local has_wants = next_run < #claim
  local may_be_lost = held > known
  local is_new = has_wants and not record
  local must_be_sure = strict == 1 and (has_wants or held > 0)
  if not verified and (may_be_lost or is_new or must_be_sure) then verify() end

  -- Register what the process holds.
  local said = MADE
  if sum == 0 then limit = 0 end
  held_max = max(held_max, limit)
  if held > known and strict == 1 and sum - known + held > held_max then
    said, held = LOST, 0
  elseif held > known then
    said = FORGOTTEN
  end
  if held > 0 then limit = held_max end
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
  if held > 0 then first_end = min(first_end, ends) end
  local extend = expires < ends
  if extend then expires = ends + lease end
  local new = encode(state_format, sum, limit, token, first_end, expires, w and 1 or 0)
  -- A server without memory refuses HSET, but not in a script that has begun with HDEL. To give back, to renew, or to
  -- change an entry needs no more memory.
  if entry or not has_wants then call('HDEL', key, held == 0 and field or '') end -- '' is no field
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
  if extend then call('PEXPIRE', key, string.format('%.0f', 2 * lease / 1000 + extra)) end
  return encode('<ddddd', said, sum, waiting(line), sum > 0 and first_end - now or 0, grace) .. grants
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
    if not made then answer = encode('<d', FAILED) end
  end
  local runs = max(#claim - 40, 0) / 32
  reply[i] = answer .. string.rep('\0', 40 + 16 * runs - #answer)
end
reply[1] = encode('<d', birth)
return table.concat(reply)
