-- list.lua reads a page of the timers in one state, in order.
--
-- ARGV   4 "w", "l" or "d", 5 and 6 the cursor: time ms and key, 7 limit, 8 maximum to examine,
--        9 prefix of the keys, 10 topic or empty, 11 a part of the last error, in small letters,
--        or empty
-- Reply  a list, for each timer: key, time ms, head without the body or empty, run or empty,
--        successor's due time (8 bytes) or empty; the time and the key of the last timer examined;
--        1 if there are more, or 0
-- Cost   O(log N) for each timer examined, at most 1000 from each lane; in each lane a binary
--        search among the timers with the cursor's time; at most 4 × 30 calls

local at, after_key, limit, max_scan = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local prefix, topic, part = ARGV[9], ARGV[10], ARGV[11]

-- Lua's < compares by the server's locale.
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

local sets = {w = {lanes[1], lanes[2], lanes[3], lanes[4]}, l = {leases}, d = {dead}}
sets = sets[ARGV[4]]
local pages, position = {}, {}
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
  pages[i], position[i] = call('ZRANGE', sets[i], low, low + max_scan, 'WITHSCORES'), 1
end

-- first returns the set whose next member is the first of all.
local function first()
  local best, key, time
  for i = 1, #sets do
    local k = pages[i][position[i]]
    if k then
      local t = tonumber(pages[i][position[i] + 1])
      if not best or t < time or t == time and greater(key, k) then best, key, time = i, k, t end
    end
  end
  return best, key, time
end

local keys, times = {}, {} -- of the timers examined
local wanted = {}          -- indexes of the records to read
for i = 1, max_scan do
  local best, key, time = first()
  if not best then break end
  position[best] = position[best] + 2
  keys[i], times[i] = key, time
  if sub(key, 1, #prefix) == prefix and not isplan(key) and key ~= '' then wanted[#wanted + 1] = i end
end

local names = {}
for i = 1, #wanted do names[i] = keys[wanted[i]] end
local head_of, run_of, succ_of = mget(heads, names), mget(runs, names), {}
if ARGV[4] == 'l' then succ_of = mget(succ, names) end
local list, last = {}, #keys
for i = 1, #wanted do
  local head, run = head_of[i], run_of[i]
  local about = head and sub(head, 1, 18 + byte(head, 2)) or ''
  if (topic == '' or sub(about, 19) == topic) and
    (part == '' or run and string.find(string.lower(lasterror(run)), part, 1, true)) then
    if #list == 5 * limit then
      last = wanted[i] - 1
      break
    end
    local n = #list
    list[n + 1], list[n + 2], list[n + 3] = names[i], times[wanted[i]], about
    list[n + 4], list[n + 5] = run or '', succ_of[i] and sub(succ_of[i], 1, 8) or ''
  end
end
local more = last < #keys or first()
return {list, times[last] or at, keys[last] or after_key, more and 1 or 0}
