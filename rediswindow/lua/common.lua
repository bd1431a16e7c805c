-- The common part of all scripts but those that only make hits. The limits of a key are fields of one
-- hash. The name of a field is a letter for the algorithm, the scale in microseconds, and, if the limit
-- has a name, a colon and that name. Other fields, which begin with #, belong to one of these.
--
-- The file of an algorithm returns a table of:
--
--   width                    the number of its arguments, the field included
--   load(s, value, fresh)    reads what is stored of a limit into s, which has key, field, scale and time.
--                            If fresh, nothing of it will be used but what clear keeps
--   save(s)                  stores it, and reports whether the hash must live until s.live
--   remove(s)                removes what is stored
--   fits(s, at)              reports whether the take with the arguments from at on fits
--   take(s, at)              makes that take, and reports whether that changes what is stored
--   count(s, at)             counts, whether it fits or not, but no more than the bound in the arguments
--   clear(s)                 forgets what was counted, and the takes that could be given back
--   active(s)                reports whether something counts, or a window is active
--   giveback(s, place, n, empty)  gives n back, and returns false if it can't. If empty, a window that
--                            has nothing else is removed
--   describe(s, result)      appends four numbers, for Go
--
-- From s.live on, nothing that is stored of a limit matters. s.epoch tells what can be given back.
--
-- If the clock was set back, what is a scale or more in the future is over, as it is in memory.
-- Otherwise a key would be denied until the clock gets there.
local call = redis.call

-- The largest count, which exceeds every Max, and the longest time in microseconds. Doubles are exact up
-- to their sum.
local most, longest = 9007199254740992, 4503599627370496

local time, grace = tonumber(ARGV[1]), ARGV[2]
if not time then
  local now = call('TIME')
  time = now[1] * 1000000 + now[2]
end

-- algorithms are the algorithms by their letters: functions that return their tables, and then these.
local algorithms = {}

-- load returns what is stored of a limit, or nil if the field is not one of a limit.
local function load(key, field, fresh)
  local letter, scale = string.match(field, '^(%l)(%d+)')
  local a = algorithms[letter]
  if not a then return end
  if type(a) == 'function' then
    a = a()
    algorithms[letter] = a
  end
  local s = {key = key, field = field, scale = tonumber(scale), time = time, algorithm = a}
  a.load(s, call('HGET', key, field), fresh)
  return s
end

