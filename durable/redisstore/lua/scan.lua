-- scan.lua reads a page of the waiting timers, or of the dead letters, in order.
--
-- ARGV   4 "w" or "d", 5 and 6 the cursor: time ms and key, 7 most
-- Reply  for each: key, time ms, head without the body or empty, run or empty
-- Cost   O(log N) for each; in each lane a search by halves among what has the cursor's
--        time; at most 4 × 30 calls

local at, after_key, most = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])

-- Lua's < goes by the server's locale.
local function greater(a, b)
  local n = min(#a, #b)
  local i = 1
  while i + 31 <= n and sub(a, i, i + 31) == sub(b, i, i + 31) do i = i + 32 end
  for j = i, n do
    local x, y = byte(a, j), byte(b, j)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local sets = ARGV[4] == 'd' and {dead} or {lanes[1], lanes[2], lanes[3], lanes[4]}
local pages = {}
for i = 1, #sets do
  local low = call('ZCOUNT', sets[i], '-inf', '(' .. int(at))
  local high = call('ZCOUNT', sets[i], '-inf', int(at))
  while low < high do
    local middle = floor((low + high) / 2)
    if greater(call('ZRANGE', sets[i], middle, middle)[1], after_key) then
      high = middle
    else
      low = middle + 1
    end
  end
  pages[i] = call('ZRANGE', sets[i], low, low + most - 1, 'WITHSCORES')
end

local keys, times, place = {}, {}, {}
for i = 1, #sets do place[i] = 1 end
while #keys < most do
  local best, key, time
  for i = 1, #sets do
    local k = pages[i][place[i]]
    if k then
      local t = tonumber(pages[i][place[i] + 1])
      if not best or t < time or t == time and greater(key, k) then best, key, time = i, k, t end
    end
  end
  if not best then break end
  place[best] = place[best] + 2
  keys[#keys + 1], times[#times + 1] = key, time
end

local head_of, run_of, list = mget(heads, keys), mget(runs, keys), {}
for i = 1, #keys do
  local head, n = head_of[i], #list
  list[n + 1], list[n + 2] = keys[i], times[i]
  list[n + 3] = head and sub(head, 1, 18 + byte(head, 2)) or ''
  list[n + 4] = run_of[i] or ''
end
return list
