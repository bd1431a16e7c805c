-- Makes calls on rate-limit windows, in their order. What it does to the state of a limit is what internal/algorithm
-- does to a Record, in which stored_max and stored_capacity are Max and Capacity. Of fixed, aligned, calendar and
-- sliding windows, start and count are the same there, as is more of a sliding one. What buckets and logs have, and
-- series, differs. So does a clock that is set back: see the end of this.
--
-- KEYS: for each limit of each call the hash of its key. ARGV[1]: the time, or nothing for that of the server. Then for
-- each limit a text, in which m is a number that may be left out if it is 1. To give back, series and position are
-- those of the take, or position is the ID of the window:
--
--   <m><verb><algorithm><scale> <limit_max> <capacity> <n> <name>
--   <series><verb><algorithm><scale> <limit_max> <position> <n> <name>
--
-- In place of a scale, a calendar window has the bounds of the window that the client believes in, START~END, and its
-- name begins with what tells calendars apart. The bounds are those of a window that opens, if now is within them.
--
-- For example, "2Tf60000000 100 100 1 :login" is two takes of 1 of a fixed window, of 100 in a minute and named login.
--
-- Equal calls are one, m times. Limit_max is Max, and capacity is what the limit allows at once: Max, the Burst of a
-- token bucket, or what a sliding log has room for. If the text begins with a +, the next limit belongs to the same
-- take: all or none.
--
--   T, P   take, peek: all of n or nothing; peek changes nothing
--   C, S   charge, set: as much of n as can be counted; set forgets what was counted before, and replaces what is no
--          window
--   G, U   give back; U undoes a call: it also removes the window, if series is 1 and nothing else is in it
--   R      reset; of what is not there, it changes nothing, but a server that can't write refuses it
--
-- Returns seven doubles for each limit:
--
--   now
--   fit            T, P, C: how many of the m fit; G, U, R: 1 if something was given back or reset; below 0: nothing
--                  can be said, as the field has something else (-1), or the key has (-2), or a window can't open,
--                  since now is not within the bounds (-3)
--   used           what counts of the limit
--   left, wait     in which time nothing does, and in which time n fit, if they do not
--   position, series
--                  of the ID of what was taken; f, a, c: the position is the ID, and the series is 1 if the call has
--                  opened the window
--
-- The state of a limit is a field of the hash, whose name is the algorithm, the scale or calendar, and, if the limit
-- has a name, a colon and that. It is eight doubles:
--
--   expires       until when the hash lives at least
--   stored_max, stored_capacity
--                 the limit_max and capacity of the last call that has changed the state, with a limit_max over 0
--   start         f, a, c: when a fixed, aligned or calendar window has started; w: when the present one of a sliding
--                 window has; b: when a token bucket has owed count; l: the number of the first entry of a sliding log
--   count         f, a, c, w: what that window has counted; l: what all entries have
--                 b: what is owed, in tokens times microseconds: one token is scale of it, and stored_max of it is
--                 paid in a microsecond, so that Max tokens are in a scale
--   id            f, a, c: the ID, the time of the server at which the window was opened, and a microsecond more for
--                 each one that the same request has opened before; others: the series, which changes when all that
--                 was counted is forgotten
--   more          c: how long the window is; w: what the window before has counted; b: how many tokens were taken in
--                 the series; l: the number after that of the last entry
--   last          l: the time of the last entry
--
-- The entries of a log, a time and a count each, are in blocks of 32, which are fields of their own:
-- #<number / 32>:<field of the state>.
--
-- Times are in microseconds, and those that are no length since 1970. If the clock was set back, what is a scale or
-- more in the future is over. (A Record starts at the present time then, with what it has counted.)
--
-- There are no functions: the script is run anew for each request, and to make one takes as long as to read a field.
local call, floor, ceil, min, max, byte = redis.call, math.floor, math.ceil, math.min, math.max, string.byte
local decode, encode, state_format, PLUS = struct.unpack, struct.pack, '<dddddddd', 43
local huge = 9007199254740991 -- the largest count
local all_series, wrap = 65536, 70368744177664 -- series, and positions, are less
local keys, args = KEYS, ARGV
local clock = call('TIME')
local next_id = clock[1] * 1000000 + clock[2]
local now = tonumber(args[1]) or next_id
-- How many milliseconds a hash outlives what it has: Redis may read its clock more than once, and others may be late.
local extra = args[1] == '' and 1000 or 3600000
local parsed, text, verb, kind, scale, limit_max, capacity, n, m, field, ends = {} -- of the text that was read last
local reply, first, final = {}, 1, 0 -- the limits of a call are those from first to final
while keys[first] do
  final = first
  while byte(args[final + 1]) == PLUS do final = final + 1 end
  -- Of a take of several limits, all are looked at first, to learn how many takes fit all of them. Then it is made.
  local all
  for pass = first < final and 1 or 2, 2 do for i = first, final do

    -- What is asked?
    local key = keys[i]
    if args[i + 1] ~= text then
      text = args[i + 1]
      local k = parsed[text]
      if k then
        m, verb, kind, scale, limit_max, capacity, n, field, ends = k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8], k[9]
      else
        local length, name
        m, verb, kind, length, ends, limit_max, capacity, n, name =
          string.match(text, '^%+?(%d*)(.)(.)(%-?%d+)~?(%-?%d*) (%d+) (%d+) (%d+) (.*)$')
        field = kind .. length .. name
        m, scale, limit_max, capacity, n = tonumber(m) or 1, length + 0, limit_max + 0, capacity + 0, n + 0
        if kind == 'c' then
          field, ends = kind .. name, ends + 0
          scale = ends - scale
        end
        if keys[2] then parsed[text] = {m, verb, kind, scale, limit_max, capacity, n, field, ends} end
      end
    end

    -- What is there?
    local fit = 1 -- how many of the m fit; below 0: nothing can be said of the limit
    local expires, stored_max, stored_capacity, start, count, id, more, last
    local state = redis.pcall('HGET', key, field)
    if type(state) == 'string' and #state == 64 then
      expires, stored_max, stored_capacity, start, count, id, more, last = decode(state_format, state)
      local sum = expires + stored_max + stored_capacity + start + count + id + more + last
      if count < 0 or sum - sum ~= 0 then expires = nil end -- no window: one of them is no number, or infinite
    end
    if not expires then
      if type(state) == 'table' then
        if string.sub(state.err, 1, 9) ~= 'WRONGTYPE' then return state end
        fit = -2
      elseif state and verb ~= 'S' and verb ~= 'R' then
        fit = -1
      end
      state, expires, stored_max, stored_capacity = false, 0, limit_max, capacity
      start, count, id, more, last = 0, 0, now % all_series, 0, 0
    end
    local before = expires

    -- Look: what is over goes, and there is room for so much.
    local room, adopted = 0, false -- b: stored_max changes while something is owed
    local portion                  -- w: so much of the window before is less than a scale ago
    local low, block               -- l: the number of its first block, and a block
    if fit < 0 then -- not a window
    elseif kind == 'f' or kind == 'a' or kind == 'c' then -- if none is open that is to stay, start is nil
      local length = kind == 'c' and state and more or scale -- a calendar window that is open keeps its end
      if verb == 'S' or not state or now >= start + length or start - now >= length then
        start, count, id = nil, 0, nil
        if kind == 'c' and (verb == 'T' or verb == 'C' or verb == 'S') and (now >= ends or now < ends - scale) then
          fit = -3
        end
      end
      room = limit_max - count
    elseif kind == 'b' then
      if not state then start = now end
      local since = now - start
      if since > 0 then
        count, start = count - since * stored_max, now
      end
      if count <= 0 or since <= -scale then -- the bucket is full, or the clock was set back
        if state then id = (id + 1) % all_series end
        start, count, more = now, 0, 0
      end
      if limit_max > 0 and limit_max ~= stored_max and verb ~= 'G' and verb ~= 'U' then
        stored_max, adopted = limit_max, count > 0
      end
      room = capacity - count / scale
    elseif kind == 'w' then
      local aligned = now - now % scale
      if not state then
        start = aligned
      elseif start - now >= scale then
        start, count, id, more = aligned, 0, (id + 1) % all_series, 0
      elseif start < aligned then
        more = start + scale == aligned and count or 0
        start, count = aligned, 0
      end
      portion = min(start + scale - now, scale)
      room = limit_max - count - ceil(more * portion / scale)
    elseif kind == 'l' then
      low = floor(start / 32)
      while start < more do
        if not block or start % 32 == 0 then block = call('HGET', key, '#' .. floor(start / 32) .. ':' .. field) end
        local at, some = decode('<dd', block, start % 32 * 16 + 1)
        if now - at < scale and at - now < scale then break end
        start, count = start + 1, count - some
      end
      room = limit_max - count
    end
    if fit > 0 and (verb == 'T' or verb == 'P') then
      fit = room >= 0 and m or 0
      if n > 0 and fit > 0 then fit = min(m, floor(room / n)) end
    end

    if pass == 1 then
      all = min(all or m, fit)
    else
      -- Make the call. Granted is what is counted, and store says whether the state has changed.
      local granted, store = 0, false
      local from_position, from_series = capacity, m -- of G and U
      local used, left, wait, position, series = 0, 0, 0, 0, 0 -- for the reply
      if verb == 'T' then
        granted = max(all or fit, 0) * n
        store = granted > 0 or adopted and first == final -- refused, a take of several limits changes nothing
      end
      if fit >= 0 and (verb == 'S' or verb == 'R') and (kind == 'b' or kind == 'w' or kind == 'l') then
        fit = (count > 0 or kind == 'w' and more > 0) and 1 or 0
        store = fit > 0 -- what was counted is forgotten; after that, set is a charge
        count, id = 0, (id + 1) % all_series
        if kind ~= 'l' then more = 0 end
      end
      if fit < 0 then -- nothing is made
      elseif kind == 'f' or kind == 'a' or kind == 'c' then
        if verb == 'C' then
          fit = min(m, n > 0 and floor((huge - count) / n) or m)
          granted, store = fit * n, true
        elseif verb == 'S' then
          granted, store = n, true
        elseif verb == 'G' or verb == 'U' then
          fit = start and id == from_position and count < huge and 1 or 0
          if fit > 0 then
            count, store = max(count - n, 0), true
            if verb == 'U' and from_series == 1 and count == 0 then
              call('HDEL', key, field)
              start, store = nil, false
            end
          end
        elseif verb == 'R' then
          fit = start and 1 or 0
          call('HDEL', key, field)
          start, count = nil, 0
        end
        if store and not start then -- the window opens
          start, id, series = now, next_id, 1
          next_id = id + 1
          if kind == 'a' then
            start = now - now % scale
          elseif kind == 'c' then
            start, more = ends - scale, scale
          end
          expires = start + scale
        end
        used = count + granted
        count = verb == 'C' and fit < m and huge or used
        if start then
          left, position = start + (kind == 'c' and more or scale) - now, id
          wait = left
        end
      elseif kind == 'b' then
        if granted > 0 then
          count, more = count + granted * scale, more + granted
        elseif verb == 'C' or verb == 'S' then -- owes at most twice what it holds, or what it has owed already
          local owed = max(min(n * scale, 2 * capacity * scale - count), 0)
          count, more, store = count + owed, more + ceil(owed / scale), store or owed > 0 or adopted
        elseif verb == 'G' or verb == 'U' then -- what was taken later is paid last
          local owed = min(n * scale, count - (more - from_position) % wrap * scale)
          fit = id == from_series and owed > 0 and 1 or 0
          if fit > 0 then
            if verb == 'U' and more % wrap == from_position then more = more - n end -- as if it had not been taken
            count, store = count - owed, true
          end
        end
        local paid = max(stored_max, 1) -- in a microsecond
        local ahead = start - now       -- in which time nothing is paid: the clock was set back
        used, left = ceil(count / scale), count > 0 and min(ceil(count / paid) + ahead, huge) or 0
        wait = ceil((count + (n - capacity) * scale) / paid) + ahead
        position, series = more % wrap, id
        if store and now + left > expires then expires = now + left + scale end
      elseif kind == 'w' then
        if granted > 0 then
          count = count + granted
        elseif verb == 'C' or verb == 'S' then
          count, store = min(count + n, huge), true
        elseif verb == 'G' or verb == 'U' then
          local age = start / scale - from_position
          fit = 0
          if id == from_series and age == 0 and count > 0 then
            count, fit, store = max(count - n, 0), 1, true
          elseif id == from_series and age == 1 and more > 0 then
            more, fit, store = max(more - n, 0), 1, true
          end
          if store and count + more == 0 then id = (id + 1) % all_series end
        end
        used, position, series = count + ceil(more * portion / scale), start / scale, id
        if used > 0 then left = start + scale - now + (count > 0 and scale or 0) end
        if fit < m and n <= limit_max then
          local free, from, hits, weighted = limit_max - n, start, count, more
          if hits > free then -- not until the next aligned window, in which these are those before
            from, hits, weighted = start + scale, 0, hits
          end
          wait = from + scale - floor((free - hits) * scale / max(weighted, free - hits, 1)) - now
        end
        if store then expires = start + 2 * scale end
      elseif kind == 'l' then
        local high = floor((more - 1) / 32) -- the number of its last block
        if verb == 'C' or verb == 'S' then
          granted, store = max(min(n, capacity - count), 0), true
        elseif verb == 'G' or verb == 'U' then
          local at, b = last - (last - from_position) % wrap, id == from_series and high or -1
          fit = 0
          while b >= floor(start / 32) and b >= 0 do
            local name = '#' .. b .. ':' .. field
            block = call('HGET', key, name)
            for e = max(start - b * 32, 0), min(more - b * 32, 32) - 1 do
              local time, some = decode('<dd', block, e * 16 + 1)
              if time == at and some > 0 then
                local rest = max(some - n, 0)
                local from = e * 16 + 8
                call('HSET', key, name, string.sub(block, 1, from) .. encode('<d', rest) .. string.sub(block, from + 9))
                fit, store, count = 1, true, count - some + rest
              end
            end
            b = decode('<d', block) <= at and -1 or b - 1
          end
          if store and count == 0 then id = (id + 1) % all_series end
          while store and count > 0 do -- the last entry is one of which something is left
            block = call('HGET', key, '#' .. floor((more - 1) / 32) .. ':' .. field)
            local time, some = decode('<dd', block, (more - 1) % 32 * 16 + 1)
            last = time
            if some > 0 then break end
            more = more - 1
          end
        end
        if store then -- entries without a count go
          if count == 0 then start, more = 0, 0 end
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
              local _, some = decode('<dd', entries, more % 32 * 16 + 1)
              sum = sum + some
            end
          end
          entries = string.sub(entries, 1, more % 32 * 16) .. encode('<dd', at, sum)
          call('HSET', key, '#' .. floor(more / 32) .. ':' .. field, entries)
          count, more, last = count + granted, more + 1, at
        end
        used, position, series = count, last % wrap, id
        if count > 0 then left = last + scale - now end
        if fit < m and n <= limit_max then -- not until enough of the first entries are over
          local over, at, e, some = count + n - limit_max, now, start, 0
          while over > 0 do
            if e % 32 == 0 or e == start then block = call('HGET', key, '#' .. floor(e / 32) .. ':' .. field) end
            at, some = decode('<dd', block, e % 32 * 16 + 1)
            over, e = over - some, e + 1
          end
          wait = at + scale - now
        end
        if store and now + scale > expires then expires = now + 2 * scale end
      end

      -- Store, expiry, reply.
      if verb == 'R' and not state and fit >= 0 then call('HDEL', key, field) end
      if store then
        if verb ~= 'G' and verb ~= 'U' and limit_max > 0 then
          stored_capacity = capacity
          if kind ~= 'b' then stored_max = limit_max end
        end
        call('HSET', key, field,
          encode(state_format, expires, stored_max, stored_capacity, start, count, id, more, last))
        if expires > before then
          local ms = ceil((expires - now) / 1000) + extra
          if call('PTTL', key) < ms then call('PEXPIRE', key, string.format('%.0f', ms)) end
        end
      end
      reply[#reply + 1] = encode('<ddddddd', now, fit, used, left, wait, position, series)
    end
  end end
  first = final + 1
end
return reply[2] and table.concat(reply) or reply[1]
