-- prune removes scales of the hash of s that are over, if it has many fields. It looks at some of them
-- only, which it chooses by the time. So a hash keeps a small part of its scales longer than necessary.
local function prune(s)
  if redis.call('HLEN', s.key) < 16 then return end
  local some = redis.call('HSCAN', s.key, string.format('%.0f', s.time % 65521), 'COUNT', 8)[2]
  for i = 1, #some, 2 do
    local field = string.match(some[i], '^%d+')
    if field and field ~= s.field then
      local other = load(s.key, field, s.time)
      if other.live <= s.time then remove(other) end
    end
  end
end

-- store stores s, and has the hash live for as long as it is needed, and grace milliseconds more.
local function store(s, grace)
  if not save(s) then return end
  local left = math.ceil((s.live - s.time) / 1000) + grace
  if redis.call('PTTL', s.key) < left then redis.call('PEXPIRE', s.key, string.format('%.0f', left)) end
  prune(s)
end
