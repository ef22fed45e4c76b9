-- reschedule.lua moves waiting timers.
--
-- ARGV   4 order, then for each: key, "=" due ms or "+" ms from now
-- Reply  for each 1 byte (store.MoveResult); present, next due, next lease end
-- Cost   O(log N) for each; at most 26 calls
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory.

local reply, refused = admit('reschedule')
if refused then return refused end
if reply then return {reply, horizon()} end

local keys = {}
for i = 5, #ARGV, 2 do keys[#keys + 1] = ARGV[i] end
local head_of, end_of, died = mget(heads, keys), zmscore(leases, keys), zmscore(dead, keys)
local answer, last = {}, {}
for i = 1, #keys do
  local key, head, when = keys[i], head_of[i], ARGV[4 + 2 * i]
  if end_of[i] then
    answer[i] = char(2) -- MoveRunning
  elseif head and not died[i] then
    answer[i] = char(1) -- Moved
    local due = tonumber(sub(when, 2))
    if sub(when, 1, 1) == '+' then due = after(due) end
    last[key] = due
    wait(key, head, due)
  else
    answer[i] = char(3) -- MoveAbsent
  end
end

local next_due = select(2, horizon())
reply = concat(answer)
call('ZREM', leases, '')
flush()
remember('reschedule', reply)
local earliest
for _, due in pairs(last) do
  if not earliest or due < earliest then earliest = due end
end
if earliest and (next_due == 0 or earliest < next_due) then publish('E' .. int(earliest)) end
return {reply, horizon()}
