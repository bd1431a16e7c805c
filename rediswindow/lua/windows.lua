-- Makes calls on rate-limit windows, in their order.
--
-- KEYS: for each limit of each call the hash of its key. ARGV[1]: the time, or nothing for that of the server. Then for each
-- limit a text:
--
--   m verb algorithm scale max holds n name
--
-- In place of a scale, a calendar window has the bounds of the window that the client believes in, START~END, and its name
-- begins with what tells calendars apart. The bounds are those of a window that opens, if now is within them.
--
-- Equal calls are one, m times. Holds is what the limit allows at once: Max, the Burst of a token bucket, or what a
-- sliding log has room for. If a + follows n, the next limit belongs to the same call: all or none.
--
--   t, p   take, peek: all of n or nothing; peek changes nothing
--   c, s   count, set: as much of n as can be counted; set forgets what was counted before
--   g, u   give back to the window with the ID holds, or to the take with the place holds and the series m; u undoes a
--          call: it also removes the window, if m is 1 and nothing else is in it
--   r      reset; of what is not there, it changes nothing, but a server that can't write refuses it
--
-- Returns seven doubles for each limit: the time; how many of the m fit (-1: the field has something else, -2: the key has,
-- -3: a window can't open, as now is not within the bounds); count; left; retry; place and series of the ID (series -1: the
-- place is the ID, -2: also, and the call has opened the window).
--
-- A field of a hash is the state of a limit: algorithm, scale or calendar, and, if it has one, a colon and its name. It is doubles, which
-- are called as in internal/algorithm:
--
--   live          until when the hash lives at least
--   rate, held    Max and what was held of the last call that has changed the state
--   start         f, a, c: when a fixed, aligned or calendar window has started; w: when the present one of a sliding window has;
--                 b: when a token bucket has owed count; l: the number of the first entry of a sliding log
--   count         f, a, c, w: what that window has counted; l: what all entries have
--                 b: what is owed, in tokens times scale: Max are paid in a microsecond
--   id            f, a, c: the ID, the time of the server at which the window was opened, and a microsecond more for each
--                 one that the same request has opened before; others: the series, which changes when all that was
--                 counted is forgotten
--   more          c: how long the window is; w: what the window before has counted; b: how many tokens were taken in the series;
--                 l: the number after that of the last entry
--   last          l: the time of the last entry
--
-- The entries of a log, a time and a count each, are in fields #<number / 32>:<field of the state>.
--
-- Times are microseconds since 1970. If the clock was set back, what is a scale or more in the future is over.
--
-- There are no functions: the script is run anew for each request, and to make one takes as long as to read a field.
local call, floor, ceil, min, max, unpack, pack = redis.call, math.floor, math.ceil, math.min, math.max, struct.unpack, struct.pack
local keys, args, state_of = KEYS, ARGV, '<dddddddd'
local most, all_series, wrap = 9007199254740991, 65536, 70368744177664 -- the largest count; series, and places, are less
local clock = call('TIME')
local next_id = clock[1] * 1000000 + clock[2]
local now = tonumber(args[1]) or next_id
-- How many milliseconds a hash outlives what it has: Redis may read its clock more than once, and another one may be late.
local grace = args[1] == '' and 1000 or 3600000
local known, text, verb, kind, scale, limit, holds, n, m, more_limits, field, ends = {}
local reply, i = {}, 1
local first, reading, all -- of a call of several limits: the index of its first, whether some are not read yet, how many fit all
while keys[i] do
  -- What is asked?
  local key = keys[i]
  if args[i + 1] ~= text then
    text = args[i + 1]
    local k = known[text]
    if k then
      verb, kind, scale, limit, holds, n, m, more_limits, field, ends = k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8], k[9], k[10]
    else
      local length, name
      m, verb, kind, length, ends, limit, holds, n, more_limits, name = string.match(text, '^(%d+) (.)(.)(%-?%d+)~?(%-?%d*) (%d+) (%d+) (%d+)(.)(.*)$')
      field, scale, limit, holds, n, m = kind .. length .. name, length + 0, limit + 0, holds + 0, n + 0, m + 0 -- numbers
      if kind == 'c' then
        field, ends = kind .. name, ends + 0
        scale = ends - scale
      end
      if keys[2] then known[text] = {verb, kind, scale, limit, holds, n, m, more_limits, field, ends} end
    end
  end
  if more_limits == '+' and not first then
    first, reading, all = i, true, m
  end

  -- What is there, and for how much is room?
  local state = redis.pcall('HGET', key, field)
  if (verb == 's' or verb == 'r') and type(state) == 'string' and #state ~= 64 then state = false end -- whatever it is
  local live, rate, held, start, count, id, more, last = 0, limit, holds, 0, 0, now % all_series, 0, 0
  local fit, room, changed, low, block, part = 1, nil, false, 0, nil, 0
  local what = kind
  if type(state) == 'string' and #state == 64 then
    live, rate, held, start, count, id, more, last = unpack(state_of, state)
    local sum = live + rate + held + start + count + id + more + last
    if count < 0 or sum - sum ~= 0 then what, fit = 'x', -1 end
  elseif state then
    what, fit = 'x', -1
    if type(state) == 'table' then
      if string.sub(state.err, 1, 9) ~= 'WRONGTYPE' then return state end
      fit = -2
    end
  end
  local before = live

  if what == 'x' then -- not a window
  elseif what == 'f' or what == 'a' or what == 'c' then
    local length = what == 'c' and state and more or scale -- a calendar window that is open keeps its end
    room = limit - count
    if not state or now >= start + length or start - now >= length then
      start, count, id, room = nil, 0, nil, limit
      if what == 'c' and (verb == 't' or verb == 'c' or verb == 's') and (now >= ends or now < ends - scale) then
        what, fit, room = 'x', -3, nil
      end
    end
  elseif what == 'b' then
    if not state then start = now end
    local since = now - start
    if since > 0 then
      count, start = count - since * rate, now
    end
    if count <= 0 or since <= -scale then -- the bucket is full
      if state then id = (id + 1) % all_series end
      start, count, more = now, 0, 0
    end
    if limit > 0 and limit ~= rate and verb ~= 'g' and verb ~= 'u' then
      rate, changed = limit, count > 0
    end
    room = holds - count / scale
  elseif what == 'w' then
    local aligned = now - now % scale
    if not state then
      start = aligned
    elseif start - now >= scale then
      start, count, id, more = aligned, 0, (id + 1) % all_series, 0
    elseif start < aligned then
      more = start + scale == aligned and count or 0
      start, count = aligned, 0
    end
    part = min(start + scale - now, scale)
    room = limit - count - ceil(more * part / scale)
  elseif what == 'l' then
    low = floor(start / 32)
    while start < more do
      if not block or start % 32 == 0 then block = call('HGET', key, '#' .. floor(start / 32) .. ':' .. field) end
      local at, some = unpack('<dd', block, start % 32 * 16 + 1)
      if now - at < scale and at - now < scale then break end
      start, count = start + 1, count - some
    end
    room = limit - count
  end
  if room and (verb == 't' or verb == 'p') then
    fit = room >= 0 and m or 0
    if n > 0 and fit > 0 then fit = min(m, floor(room / n)) end
  end

  if reading then -- all limits of the call are read first, and then once more, to make it
    all = min(all, fit)
    reading = more_limits == '+'
    i = reading and i + 1 or first
  else
    -- Make the call.
    local granted, stored, used = 0, false, 0
    local left, retry, place, of = 0, 0, 0, 0
    if verb == 't' then
      granted = (all or fit) * n
      stored = granted > 0 or changed and not all
    end
    if what == 'x' then -- nothing is made
    elseif all and all < 0 then -- another limit of the call has failed
      fit = 0
    elseif what == 'f' or what == 'a' or what == 'c' then
      if verb == 'c' then
        fit = min(m, n > 0 and floor((most - count) / n) or m)
        granted, stored = fit * n, true
      elseif verb == 's' then
        count, granted, stored = 0, n, true
        if start and what == 'c' then
          id = next_id
          next_id = id + 1
        else
          start = nil
        end
      elseif verb == 'g' or verb == 'u' then
        fit = start and id == holds and count < most and 1 or 0
        if fit > 0 then
          count, stored = max(count - n, 0), true
          if verb == 'u' and m == 1 and count == 0 then
            call('HDEL', key, field)
            start, stored = nil, false
          end
        end
      elseif verb == 'r' then
        fit = start and 1 or 0
        call('HDEL', key, field)
        start, count = nil, 0
      end
      of = -1
      if stored and not start then
        start, id, of = now, next_id, -2
        next_id = id + 1
        if what == 'a' then
          start = now - now % scale
        elseif what == 'c' then
          start, more = ends - scale, scale
        end
        live = start + scale
      end
      used = count + granted
      count = verb == 'c' and fit < m and most or used
      if start then
        left, place = start + (what == 'c' and more or scale) - now, id
        retry = left
      end
    elseif what == 'b' then
      if granted > 0 then
        count, more = count + granted * scale, more + granted
      elseif verb == 'c' then -- owes at most twice what it holds, or what it has owed already
        local owed = max(min(n * scale, 2 * holds * scale - count), 0)
        count, more, stored = count + owed, more + ceil(owed / scale), true
      elseif verb == 'g' or verb == 'u' then -- what was taken later is paid last
        local owed = min(n * scale, count - (more - holds) % wrap * scale)
        fit = id == m and owed > 0 and 1 or 0
        if fit > 0 then
          if verb == 'u' and more % wrap == holds then more = more - n end -- as if it had not been taken
          count, stored = count - owed, true
        end
      elseif verb == 's' or verb == 'r' then
        fit = count > 0 and 1 or 0
        stored = fit > 0 or verb == 's'
        count, id, more = verb == 's' and min(n, 2 * holds) * scale or 0, (id + 1) % all_series, 0
      end
      local paid = max(rate, 1)
      used, left = ceil(count / scale), min(ceil(count / paid), most)
      retry = ceil((count + (n - holds) * scale) / paid)
      place, of = more % wrap, id
      if stored and now + left > live then live = now + left + scale end
    elseif what == 'w' then
      if granted > 0 then
        count = count + granted
      elseif verb == 'c' then
        count, stored = min(count + n, most), true
      elseif verb == 'g' or verb == 'u' then
        local age = start / scale - holds
        fit = 0
        if id == m and age == 0 and count > 0 then
          count, fit, stored = max(count - n, 0), 1, true
        elseif id == m and age == 1 and more > 0 then
          more, fit, stored = max(more - n, 0), 1, true
        end
        if stored and count + more == 0 then id = (id + 1) % all_series end
      elseif verb == 's' or verb == 'r' then
        fit = count + more > 0 and 1 or 0
        stored = fit > 0 or verb == 's'
        count, id, more = verb == 's' and n or 0, (id + 1) % all_series, 0
      end
      used, place, of = count + ceil(more * part / scale), start / scale, id
      if used > 0 then left = start + scale - now + (count > 0 and scale or 0) end
      if fit < m and n <= limit then
        local free, from, hits, weighted = limit - n, start, count, more
        if hits > free then -- not until the next aligned window, in which these are those before
          from, hits, weighted = start + scale, 0, hits
        end
        retry = from + scale - floor((free - hits) * scale / max(weighted, free - hits, 1)) - now
      end
      if stored then live = start + 2 * scale end
    elseif what == 'l' then
      local high = floor((more - 1) / 32)
      if verb == 'c' then
        granted, stored = max(min(n, holds - count), 0), true
      elseif verb == 's' or verb == 'r' then
        fit = count > 0 and 1 or 0
        stored = fit > 0 or verb == 's'
        count, id = 0, (id + 1) % all_series
        if verb == 's' then granted = min(n, holds) end
      elseif verb == 'g' or verb == 'u' then
        local at, b = last - (last - holds) % wrap, id == m and high or -1
        fit = 0
        while b >= floor(start / 32) and b >= 0 do
          local name = '#' .. b .. ':' .. field
          block = call('HGET', key, name)
          for e = max(start - b * 32, 0), min(more - b * 32, 32) - 1 do
            local time, some = unpack('<dd', block, e * 16 + 1)
            if time == at and some > 0 then
              local rest = max(some - n, 0)
              call('HSET', key, name, string.sub(block, 1, e * 16 + 8) .. pack('<d', rest) .. string.sub(block, e * 16 + 17))
              fit, stored, count = 1, true, count - some + rest
            end
          end
          b = unpack('<d', block) <= at and -1 or b - 1
        end
        if stored and count == 0 then id = (id + 1) % all_series end
        while stored and count > 0 do -- the last entry is one of which something is left
          local time, some = unpack('<dd', call('HGET', key, '#' .. floor((more - 1) / 32) .. ':' .. field), (more - 1) % 32 * 16 + 1)
          last = time
          if some > 0 then break end
          more = more - 1
        end
      end
      if stored then -- entries without a count go
        if count == 0 then
          start, more = 0, 0
        end
        for b = low, min(floor(start / 32) - 1, high) do call('HDEL', key, '#' .. b .. ':' .. field) end
        for b = max(floor((more - 1) / 32) + 1, low), high do call('HDEL', key, '#' .. b .. ':' .. field) end
      end
      if granted > 0 then
        local at, sum, entries = now, granted, ''
        if more > start then
          entries = call('HGET', key, '#' .. floor((more - 1) / 32) .. ':' .. field)
          at = max(now, last) -- the clock may have been set back
          if at == last then -- the last entry becomes larger
            more = more - 1
            local _, some = unpack('<dd', entries, more % 32 * 16 + 1)
            sum = sum + some
          end
        end
        entries = string.sub(entries, 1, more % 32 * 16) .. pack('<dd', at, sum)
        call('HSET', key, '#' .. floor(more / 32) .. ':' .. field, entries)
        count, more, last = count + granted, more + 1, at
      end
      used, place, of = count, last % wrap, id
      if count > 0 then left = last + scale - now end
      if fit < m and n <= limit then -- not until enough of the first entries are over
        local over, at, e, some = count + n - limit, now, start, 0
        while over > 0 do
          if e % 32 == 0 or e == start then block = call('HGET', key, '#' .. floor(e / 32) .. ':' .. field) end
          at, some = unpack('<dd', block, e % 32 * 16 + 1)
          over, e = over - some, e + 1
        end
        retry = at + scale - now
      end
      if stored and now + scale > live then live = now + 2 * scale end
    end

    -- Store, expiry, reply.
    if verb == 'r' and not state then call('HDEL', key, field) end
    if stored then
      if verb ~= 'g' and verb ~= 'u' then held = holds end
      if what ~= 'b' then rate = limit end
      call('HSET', key, field, pack(state_of, live, rate, held, start, count, id, more, last))
      if live > before then
        local ms = min(ceil((live - now) / 1000), 4503599627370) + grace -- at most 142 years
        if call('PTTL', key) < ms then call('PEXPIRE', key, string.format('%.0f', ms)) end
        if call('HLEN', key) >= 16 then -- some of what is over goes
          local some = call('HSCAN', key, string.format('%.0f', now % 65521), 'COUNT', 8)[2]
          for f = 1, #some, 2 do
            if #some[f + 1] == 64 and string.find(some[f], '^[abcflw]') then
              local ended, _, _, from, _, _, to = unpack(state_of, some[f + 1])
              if ended <= now then
                call('HDEL', key, some[f])
                if string.sub(some[f], 1, 1) == 'l' then
                  for b = floor(from / 32), floor((to - 1) / 32) do call('HDEL', key, '#' .. b .. ':' .. some[f]) end
                end
              end
            end
          end
        end
      end
    end
    reply[#reply + 1] = pack('<ddddddd', now, fit, used, left, retry, place, of)
    if more_limits ~= '+' then first, all = nil, nil end
    i = i + 1
  end
end
return reply[2] and table.concat(reply) or reply[1]
