
-- prune removes limits of the hash of s that are over, if it has many fields. It looks at some of them
-- only, which it chooses by the time. So a hash keeps a small part of its limits longer than necessary.
local function prune(s)
  if call('HLEN', s.key) < 16 then return end
  local some = call('HSCAN', s.key, string.format('%.0f', time % 65521), 'COUNT', 8)[2]
  for i = 1, #some, 2 do
    local other = some[i] ~= s.field and load(s.key, some[i])
    if other and other.live <= time then other.algorithm.remove(other) end
  end
end

-- store stores s, and has the hash live for as long as it is needed, and grace milliseconds more.
local function store(s)
  if not s.algorithm.save(s) then return end
  local left = math.ceil((s.live - time) / 1000) + grace
  if call('PTTL', s.key) < left then call('PEXPIRE', s.key, string.format('%.0f', left)) end
  prune(s)
end

