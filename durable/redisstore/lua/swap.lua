-- swap.lua changes plans, in order, and creates their occurrences.
--
-- ARGV   4 order, 5 MaxPending or 0, then for each swap: key, ID that it must have or empty,
--        head or empty to remove it, body if the head refers to it or empty, due ms, wake, ends
--        seen, number of entries, and for each entry: key, when ("=" due ms, or "+" ms from now),
--        head, body if the head refers to it or empty
-- Reply  for each swap 1 byte (store.SwapResult); present, next due, next lease end
-- Cost   O(log N) for each swap and entry; at most 36 calls
--
-- The first write adds nothing, but Redis refuses it at maxmemory if something is to be added:
-- then nothing was changed.

local reply, refused = admit('swap')
if refused then return refused end
if reply then return {reply, horizon()} end

local most = tonumber(ARGV[5])
local swaps, keys, plans, at = {}, {}, {}, 6
while at <= #ARGV do
  local s = {
    key = ARGV[at], was = ARGV[at + 1], head = ARGV[at + 2], body = ARGV[at + 3],
    due = tonumber(ARGV[at + 4]), wake = tonumber(ARGV[at + 5]), seen = tonumber(ARGV[at + 6]), entries = {},
  }
  keys[#keys + 1], plans[#plans + 1] = s.key, s.key
  local n = tonumber(ARGV[at + 7])
  at = at + 8
  for i = 1, n do
    s.entries[i] = {key = ARGV[at], when = ARGV[at + 1], head = ARGV[at + 2], body = ARGV[at + 3]}
    keys[#keys + 1] = ARGV[at]
    at = at + 4
  end
  swaps[#swaps + 1] = s
end

local found, old, history_of = mget(heads, keys), {}, {}
for i = 1, #keys do old[keys[i]] = found[i] end
found = mget(histories, plans)
for i = 1, #plans do history_of[plans[i]] = found[i] or NEW end

local pending = 0
if most > 0 then
  pending = call('ZCARD', leases) + call('HLEN', succ)
  for i = 1, 5 do pending = pending + call('ZCARD', lanes[i]) end
end

-- A plan can come twice: what it is after each swap is kept here, and written at the end.
local head_of, last, created, order, answer, adds = {}, {}, {}, {}, {}, false
for key, head in pairs(old) do head_of[key] = head end
for i = 1, #swaps do
  local s = swaps[i]
  local head = head_of[s.key]
  local added = 0
  if s.was == '' then added = 1 end
  for j = 1, #s.entries do
    if not head_of[s.entries[j].key] then added = added + 1 end
  end
  if s.head == '' then added = 0 end
  if (head and sub(head, 3, 18) or '') ~= s.was then
    answer[i] = char(2) -- SwapLost
  elseif most > 0 and added > 0 and pending + added > most then
    answer[i] = char(3) -- SwapRefused
  else
    answer[i] = char(1) -- Swapped
    if not last[s.key] then order[#order + 1] = s.key end
    last[s.key] = s
    pending, adds = pending + added, adds or added > 0
    if s.head == '' then
      head_of[s.key] = false
      if head then pending = pending - 1 end
      history_of[s.key] = NEW
    else
      head_of[s.key] = s.head
      for j = 1, #s.entries do
        local e = s.entries[j]
        if not head_of[e.key] then
          head_of[e.key] = e.head
          created[#created + 1] = e
        end
      end
    end
  end
end

local earliest
local function due_at(due)
  if not earliest or due < earliest then earliest = due end
end
for i = 1, #order do
  local key = order[i]
  local s, head, history = last[key], old[key], history_of[key]
  if s.head == '' then
    if head then
      put(rem_w[5], key)
      put(rem_l, key)
      forget(key, head)
    end
  else
    if head then
      put(rem_l, key)
      put(del_r, key)
      if big(head) then put(del_b, ref(head)) end
    else
      put(add_i, 0, key)
    end
    local due, wake = s.due, s.wake
    if wake > 0 and ends_of(history, wake) > s.seen then due, wake = now, 0 end
    wait(key, s.head, due)
    due_at(due)
    put(set_h, key, s.head)
    if s.body ~= '' then put(set_b, ref(s.head), s.body) end
    if not head or history == NEW or byte(history, 1) ~= wake then put(set_y, key, setwake(history, wake)) end
  end
end
for i = 1, #created do
  local e = created[i]
  local due = tonumber(sub(e.when, 2))
  if sub(e.when, 1, 1) == '+' then due = after(due) end
  wait(e.key, e.head, due)
  due_at(due)
  put(set_h, e.key, e.head)
  if e.body ~= '' then put(set_b, ref(e.head), e.body) end
end

local next_due = select(2, horizon())
reply = concat(answer)
if adds then call('ZADD', leases, 'XX', 0, '') else call('ZREM', leases, '') end
flush()
remember('swap', reply)
if earliest and (next_due == 0 or earliest < next_due) then publish('E' .. int(earliest)) end
return {reply, horizon()}
