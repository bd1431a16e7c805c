-- Makes the calls of a request, in their order, on the limits of some keys. The limits of a key are fields of
-- one hash. The name of a field is a letter for the algorithm, the scale in microseconds, and, if the limit
-- has a name, a colon and that name. Other fields, which begin with #, belong to sliding logs.
--
-- KEYS: the hashes. ARGV[1]: the time (NaN: that of the server), how many milliseconds a hash outlives what it
-- has, the ID of the first window that opens, all three as doubles, and the calls. A call has four bytes or more: how many
-- equal calls there are of it, how many limits it has, and for each the index of its hash and that of its
-- policy. One without limits is on all limits of a hash. The other arguments are the policies: two bytes for
-- verb and letter, five doubles, a text that ends with a zero byte, and the name of the field:
--
--   take, peek     scale, bound, n; all or nothing. Peek changes nothing.
--   count, set     scale, bound, n; as much as the bound allows. Set forgets what was counted before.
--   back           scale, ID or epoch, place, n, whether a window that is empty then is removed
--   reset          scale
--   delete         the text: scales, with a space before and after each; none: all
--
-- Bound and n of a token bucket are times in microseconds and 2^-32 µs, except in back, and its text is the time of a token.
--
-- Returns the time as a double, a byte for each limit of each call, and a value for each. The byte says how many
-- of the equal calls fit the limit, or 1 if something was given back or forgotten. Take, peek, count and set
-- have what is stored after the call as the value, delete has how many limits had something, and back and reset
-- have none. If a call has failed, all its bytes are 255, and its only value is a text, after its length.
--
-- Equal calls are granted as if they were made one after the other. Several limits of a call are all granted or
-- none. A value that is no window, or a hash that is none, fails its calls only. So what Redis is asked here
-- returns its errors; one that comes before anything was written is that of the request.
--
-- Times are in microseconds since 1970. If the clock was set back, what is a scale or more in the future is over,
-- as it is in memory. Otherwise a key would be denied until the clock gets there.
--
-- What is read of a limit is in the locals a to g:
--
--   fixed, aligned   count, start (nil: no window is active), ID; stored as three doubles
--   sliding window   start of an aligned window, its hits, those of the one before, epoch; four doubles
--   token bucket     full, part, epoch, live, start, back, at; see below
--   sliding log      a table, see log.lua
--
-- An epoch is a number that changes when all that was counted is forgotten, so that nothing of before is given
-- back. From live on, nothing that is stored of a limit matters.
--
-- A token bucket is stored as doubles, but for the epoch, which has two bytes:
--
--   full, part   when the bucket is full: microseconds, and 2^-32 µs
--   epoch        also changes when the bucket is full, and when the time of a token changes
--   live         until when the hash lives at least
--   start        the start of the epoch
--   back         the time of all that was given back in the epoch, rounded up
--   at           the time of the last change
--
-- and the time of a token as text: "<microseconds> <2^-32 µs>". If rate or size of the bucket change, full stays.
local call, byte, floor, decode, encode, unpack = redis.pcall, string.byte, math.floor, struct.unpack, struct.pack, unpack
local take, count, peek, back, set, reset, prune = 0, 1, 2, 3, 4, 5, 7 -- and 6, delete
local fixed, aligned, bucket, sliding = 102, 97, 98, 119 -- the letters; and 108, sliding logs

-- The largest count, which exceeds every Max, and the longest time in microseconds. Doubles are exact up
-- to their sum.
local most, longest, epochs, second = 9007199254740992, 4503599627370496, 65536, 4294967296

local keys, head = KEYS, ARGV[1]
local time, grace, id = decode('<ddd', head)
if time ~= time then
  local now = redis.call('TIME')
  time = now[1] * 1000000 + now[2]
end

local at, stop = 25, #head
local policies, policy = {}, nil
local bytes, values, results, texts = {}, {}, 0, 0
local written -- whether anything was
local crowded -- hashes with many fields
local group -- what is read of the limits of a call, but for the first and the last
local log

local verb, letter, scale, x, xp, n, np, text, field
local a, b, c, d, e, f, g, T, live, value, fits
local a1, b1, c1, d1, e1, f1, g1, T1, live1, value1, fits1 -- of the first limit of several
while true do
  local m, size, list, key = 1, 1, nil, nil
  if at <= stop then
    m, size = byte(head, at, at + 1)
    at = at + 2
  elseif crowded then
    size = -1
  else
    break
  end
  local all, fault = m, nil

  if size < 1 then -- what a hash has: to delete it, or to remove what is over of some of it
    local some, scales, what
    if size == 0 then
      local k, p = byte(head, at, at + 1)
      at = at + 2
      key, scales, what = keys[k], decode('s', ARGV[p + 1], 43), reset
      some = call('HKEYS', key)
      fault = some.err and some
    else
      key, scales, what = table.remove(crowded), '', prune
      if #crowded == 0 then crowded = nil end
      local pairs = call('HSCAN', key, string.format('%.0f', time % 65521), 'COUNT', 8)[2] or {}
      some = {}
      for i = 1, #pairs, 2 do some[#some + 1] = pairs[i] end
    end
    list = {what = what}
    for i = 1, #some do
      local l, s = string.match(some[i], '^([fabwl])(%d+)')
      if l and (scales == '' or string.find(scales, ' ' .. s .. ' ', 1, true)) then
        list[#list + 1] = {what, byte(l), tonumber(s), 0, 0, 0, 0, '', some[i]}
      end
    end
    size = #list
  end

  -- First, it reads all limits of the call, and finds how many of the equal calls fit all of them.
  local begin, after = at, list and at or at + 2 * size
  local pair, first = size == 2 and not list, nil
  if size > 2 and not group then group = {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}} end
  for w = 1, size do
    local P
    if list then
      P = list[w]
    else
      local k, p = byte(head, at, at + 1)
      at, key, P = at + 2, keys[k], policies[p]
      if not P then
        P = {decode('<BBddddds', ARGV[p + 1])}
        P[9] = string.sub(ARGV[p + 1], P[9])
        policies[p] = P
      end
    end
    if P ~= policy then
      policy = P
      verb, letter, scale, x, xp, n, np, text, field = unpack(P)
    end
    value, fits = call('HGET', key, field), m

    if letter == fixed or letter == aligned then
      a, b = 0, nil
      if value and (verb ~= set or value.err) then
        local count, start, window
        if #value == 24 then count, start, window = decode('<ddd', value) end
        if not (count and count >= 0 and count <= most and start - start == 0) then
          fault = value
        elseif time < start + scale and start < time + scale then
          a, b, c = count, start, window
        end
      end
      if verb <= peek then
        if n > 0 then
          fits = floor((x - a) / n)
          if fits > m then fits = m elseif fits < 0 then fits = 0 end
        elseif a > x then
          fits = 0
        end
      elseif verb == back then
        if b and c == x and c ~= 0 and a < most then
          a = math.max(a - n, 0)
          if np == 1 and a == 0 then b = nil end
        else
          fits = 0
        end
      elseif verb == prune then
        if b then fits = 0 end
      elseif verb == reset then
        if b then a, b = 0, nil else fits = 0 end
      end

    elseif letter == bucket and (not value or #value >= 50) then
      if not value then
        a, b, c, d, e, f, g, T = time, 0, time % epochs, -longest, time, 0, time, ''
      else
        a, b, c, d, e, f, g = decode('<ddHdddd', value)
        T = string.sub(value, 51)
      end
      local anew = g - time >= scale
      if anew then a, b, d, g = time, 0, -longest, time end
      if verb <= peek or verb == set then
        if a < time then a, b, anew = time, 0, true end -- a bucket is never more than full
        if T ~= text then T, anew = text, true end
      end
      if anew then c, e, f = (c + 1) % epochs, time, 0 end
      if verb == take or verb == peek then
        local latest, full, part = time + x, a, b
        fits = 0
        while fits < m and (full < latest or full == latest and part <= xp) do
          fits, full, part = fits + 1, full + n, part + np
          if part >= second then full, part = full + 1, part - second end
        end
      elseif verb == back then
        -- The place of a take is when the bucket was to be full after it, plus what had been given back in its epoch
        -- by then, modulo 2^46. It gives back the time of n tokens, less what has come back of them since they were
        -- taken.
        --
        -- Let V be when the bucket would be full without these tokens, and without all others that were given
        -- back. What is given back must not be more than full - V. That is at least the time of n tokens if the
        -- bucket would not have been full since they were taken. Otherwise, all that was taken until then would
        -- have come back by the place - back, even if what was given back since was taken before: so it is at
        -- least place - back - time. If that is less, and something was given back in the epoch, it may have been
        -- taken later. Then nothing is given back, rather than a part.
        local left = (xp - f - a + 35184372088832) % 70368744177664 - 35184372088832 + a - time
        local whole, part = string.match(T, '^(%d+) (%d+)$')
        if not (whole and c == x and (a > time or a == time and b > 0)) then
          fits = 0
        elseif n > 0 then
          part = n * part -- exact up to 2^21 tokens, and otherwise rounded up
          local carry = floor(part / second)
          if part < most then part = part - carry * second else carry, part = carry + 2, 0 end
          whole = math.min(n * whole + carry, longest)
          if time > e and (whole > left or whole == left and part > 0) then
            if f > 0 or left <= 0 then fits = 0 else whole, part = left, 0 end
          end
          if fits > 0 then
            f = (f + whole + (part > 0 and 1 or 0)) % 70368744177664
            a, b = a - whole, b - part
            if b < 0 then a, b = a - 1, b + second end
            if a < time then a, b = time, 0 end
          end
        end
      elseif verb == prune then
        if d > time then fits = 0 end
      elseif verb ~= count then -- set, reset
        if verb == reset and not (a > time or a == time and b > 0) then fits = 0 end
        a, b, c, e, f = time, 0, (c + 1) % epochs, time, 0
      end

    elseif letter == sliding and (not value or #value == 32) then
      local now = time - time % scale
      a, b, c, d, live = now, 0, 0, time % epochs, -longest
      if value then
        local start
        start, b, c, d = decode('<dddd', value)
        live = start + 2 * scale
        if start - time >= scale then
          b, c, d, live = 0, 0, (d + 1) % epochs, -longest
        elseif now <= start then
          a = start
        else
          b, c = 0, now == start + scale and b or 0
        end
      end
      if verb == take or verb == peek then
        -- The hits of the aligned window before, weighted by the part of it that still counts, are compared with the
        -- room for them, both times the scale. If the products are different as doubles, they differ in the same way
        -- exactly.
        local left, room = a + scale - time, x - b - n
        if left > scale then left = scale end
        local hits = c * left
        fits = 0
        while fits < m and room >= 0 do
          local bound = room * scale
          if hits > bound then break end
          if hits == bound and hits >= most then
            -- product returns a product of up to 2^53 and up to 2^52, exactly: how many times 2^52, and the rest.
            local function product(p, q)
              local half = 67108864 -- 2^26
              local p0, q0 = p % half, q % half
              local p1, q1 = (p - p0) / half, (q - q0) / half
              local low, y, z = p0 * q0, p1 * q0, p0 * q1
              local middle = y % half + z % half + floor(low / half)
              return p1 * q1 + floor(y / half) + floor(z / half) + floor(middle / half), middle % half * half + low % half
            end
            local high, low = product(c, left)
            local boundHigh, boundLow = product(room, scale)
            if high > boundHigh or high == boundHigh and low > boundLow then break end
          end
          fits, room = fits + 1, room - n
        end
      elseif verb == back then -- to the aligned window with a number
        local age = a / scale - xp
        if not (d == x and (b > 0 or c > 0)) then
          fits = 0
        elseif age == 0 and b < most then
          b = math.max(b - n, 0)
        elseif age == 1 and c < most then
          c = math.max(c - n, 0)
        else
          fits = 0
        end
      elseif verb == prune then
        if live > time then fits = 0 end
      elseif verb ~= count then -- set, reset
        if verb == reset and b == 0 and c == 0 then fits = 0 end
        b, c, d = 0, 0, (d + 1) % epochs
      end

    elseif letter == 108 then
      log = log or (function()
--[[ log.lua ]]
      end)()
      local ok, s, some = pcall(log.read, value, key, field, scale, verb, x, xp, n, m)
      if ok and s then
        a, fits = s, some
      elseif ok then
        fault = value
      elseif s.err and not written then
        return s
      else
        fault = s
      end

    else
      fault = value
    end

    if fault and verb ~= prune then break end
    if fault then fault, fits = nil, 0 end
    if fits < all then all = fits end
    if size > 1 then
      if w == 1 then
        a1, b1, c1, d1, live1, value1, fits1 = a, b, c, d, live, value, fits
        if letter == bucket then e1, f1, g1, T1 = e, f, g, T end
      elseif w < size then
        local v = group
        v[1][w], v[2][w], v[3][w], v[4][w], v[8][w], v[9][w], v[10][w] = a, b, c, d, live, value, fits
        if letter == bucket then v[5][w], v[6][w], v[7][w], v[11][w] = e, f, g, T end
      end
      first = first or key
      pair = pair and key == first and verb == take and letter ~= 108 and n + np > 0
    end
  end

  -- Then it makes as many of the equal calls as fit all limits. It begins with the last limit, which it has read last.
  local begun, done, lives, held, deleted = results, texts, nil, nil, 0
  for w = fault and 0 or size, 1, -1 do
    if w < size then
      local P
      if list then
        P = list[w]
      else
        local k, p = byte(head, begin + 2 * w - 2, begin + 2 * w - 1)
        key, P = keys[k], policies[p]
      end
      if P ~= policy then
        policy = P
        verb, letter, scale, x, xp, n, np, text, field = unpack(P)
      end
      if w == 1 then
        a, b, c, d, live, value, fits = a1, b1, c1, d1, live1, value1, fits1
        if letter == bucket then e, f, g, T = e1, f1, g1, T1 end
      else
        local v = group
        a, b, c, d, live, value, fits = v[1][w], v[2][w], v[3][w], v[4][w], v[8][w], v[9][w], v[10][w]
        if letter == bucket then e, f, g, T = v[5][w], v[6][w], v[7][w], v[11][w] end
      end
    end

    local change, stored
    if verb == take then
      change = all > 0 and n + np > 0
    elseif verb == peek then
      change = false
    elseif verb == count or verb == set then
      change = true
    else
      change = fits > 0
    end
    if not change and verb > peek then -- nothing is asked about it
    elseif not change then
      if letter == bucket then
        value = encode('<ddHdddd', a, b, c, d, e, f, g) .. T
      elseif letter == sliding then
        value = encode('<dddd', a, b, c, d)
      elseif letter == 108 then
        value = log.describe(a)
      elseif not b then
        value = encode('<ddd', -1, 0, 0)
      end
    elseif verb == prune and letter ~= 108 then -- stored stays nil

    elseif letter == fixed or letter == aligned then
      if verb <= count or verb == set then
        if not b then
          b, c, id = time, id, id + 1
          if letter == aligned then b = time - time % scale end
          lives = math.max(lives or b + scale, b + scale)
        end
        if verb == take then a = a + all * n else a = a + fits * n end
        value = encode('<ddd', a, b, c)
        stored = value
        if verb == count and fits < m then stored = encode('<ddd', most, b, c) end
      elseif b then
        stored = encode('<ddd', a, b, c)
      end

    elseif letter == bucket then
      if verb == take then
        a, b = a + all * n, b + all * np
        if b >= second then a, b = a + floor(b / second), b % second end
      elseif verb == count or verb == set then -- what is owed already stays
        local bound = time + x
        if a < bound or a == bound and b <= xp then
          a, b = a + n, b + np
          if b >= second then a, b = a + 1, b - second end
          if a > bound or a == bound and b > xp then a, b = bound, xp end
        end
      end
      if a > d then
        d = a + scale
        lives = math.max(lives or d, d)
      end
      if g < time then g = time end
      value = encode('<ddHdddd', a, b, c, d, e, f, g) .. T
      stored = value

    elseif letter == sliding then
      if verb == take then
        b = b + all * n
      elseif verb == count or verb == set then
        b = math.max(b, math.min(b + n, x))
      end
      value = encode('<dddd', a, b, c, d)
      stored = value
      if a + 2 * scale > live then
        live = a + 2 * scale
        lives = math.max(lives or live, live)
      end

    else
      local ok, l
      ok, value, l = pcall(log.change, a, verb, all, n, x)
      if not ok and value.err and not written then return value end
      written = true
      if not ok then
        fault = value
        break
      end
      if l then lives = math.max(lives or l, l) end
    end

    if verb <= peek or verb == set then
      texts = texts + 1
      values[done + w] = value
    end
    results = results + 1
    bytes[begun + w] = fits
    deleted = deleted + fits

    if change and letter ~= 108 then
      local reply
      if not stored then
        reply = call('HDEL', key, field)
      elseif not pair then
        reply = call('HSET', key, field, stored)
      elseif w == 2 then
        reply, held, first = 0, stored, field
      else
        reply = call('HSET', key, field, stored, first, held)
      end
      if reply ~= 0 and reply ~= 1 and reply ~= 2 then
        if not written then return reply end
        fault = reply
        break
      end
      written = written or not pair or w == 1
    end
    if lives and not (pair and w == 2) then
      local left, reply = math.ceil((lives - time) / 1000) + grace, call('PTTL', key)
      lives = nil
      if tonumber(reply) and reply < left then reply = call('PEXPIRE', key, string.format('%.0f', left)) end
      if not tonumber(reply) then
        fault = {err = 'counted, but the end of the hash could not be set (may the user run PTTL and PEXPIRE?): ' .. reply.err}
        break
      end
      if (tonumber(call('HLEN', key)) or 0) >= 16 and verb ~= prune then
        crowded = crowded or {}
        crowded[#crowded + 1] = key
      end
    end
  end

  at = after
  if list then results, texts, size = begun, done, 1 end
  if list and list.what == prune then -- nobody asks
  elseif fault then
    local reason = string.sub(type(fault) == 'table' and fault.err or 'not a window: ' .. fault, 1, 255)
    for w = 1, size do bytes[begun + w] = 255 end
    results, texts = begun + size, done + 1
    values[texts] = string.char(#reason) .. reason
  elseif list then
    results, texts = begun + 1, done + 1
    bytes[results], values[texts] = 1, encode('<d', deleted)
  end
end
if results == 1 then return encode('<dB', time, bytes[1]) .. (values[1] or '') end
return encode('<d', time) .. string.char(unpack(bytes, 1, results)) .. table.concat(values, '', 1, texts)
