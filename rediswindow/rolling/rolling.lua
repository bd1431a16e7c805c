-- The common part of the scripts of rolling algorithms, which have one hash for each key, with a field
-- for each scale. What follows, one file for each algorithm, defines:
--
--   width                       the number of arguments of a take
--   load(key, field, time)      returns what is stored of a scale, a table
--   save(s, grace)              stores it, for as long as it is needed and grace milliseconds
--   fits(s, at)                 reports whether the take with the arguments from at on fits
--   take(s, at)                 makes that take, and reports whether that changes what is stored
--   count(s, n, bound)          counts n hits, whether they fit or not, but no more than the bound
--   clear(s)                    forgets all hits, and the takes that could be given back
--   active(s)                   reports whether there are hits
--   giveback(s, place, n)       gives n hits back, and returns false if it can't
--   describe(s, result, taken)  appends what Go needs to know, after a take or otherwise

-- The largest count, and the longest time in microseconds. Doubles are exact up to their sum.
local most, longest = 9007199254740992, 4503599627370496

-- extend has a key live for a time, and for grace milliseconds more.
local function extend(key, left, grace)
  left = math.ceil(left / 1000) + grace
  if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, string.format('%.0f', left)) end
end
