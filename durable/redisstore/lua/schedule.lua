-- schedule.lua adds timers, in order.
--
-- ARGV   4 order, 5 MaxPending or 0, then for each entry:
--        key, when, head, body if the head refers to it or empty
--        when: "=" due ms, or "+" ms from now; "1" if only when absent, or "0"; the number
-- Reply  for each entry 1 byte kind (store.ReceiptKind), 8 bytes due; present, next due,
--        next lease end
-- Cost   O(log N) for each entry; at most 45 calls
--
-- The first write adds nothing, but Redis refuses it at maxmemory: then nothing has changed.

local reply, refused = admit('schedule')
if refused then return refused end
if reply then return {reply, horizon()} end

local max_pending = tonumber(ARGV[5])
local _, next_due, next_end = horizon()
local n = (#ARGV - 5) / 4
local keys = {}
for i = 1, n do keys[i] = ARGV[2 + 4 * i] end

local head_of = mget(heads, keys)
local end_of, succ_of, died = {}, {}, {}
if next_end > 0 then end_of, succ_of = zmscore(leases, keys), mget(succ, keys) end
if call('ZCARD', dead) > 0 then died = zmscore(dead, keys) end

local pending = 0
if max_pending > 0 then
  pending = call('ZCARD', leases) + call('HLEN', succ)
  for i = 1, 5 do pending = pending + call('ZCARD', lanes[i]) end
end

-- A key can occur twice: its state after each entry is kept here, and written at the end.
local state, order, answer, scheduled = {}, {}, {}, 0
for i = 1, n do
  local key, when = keys[i], ARGV[3 + 4 * i]
  local s = state[key]
  if not s then
    s = {head = head_of[i], old_succ = succ_of[i], succ = succ_of[i]}
    s.was = end_of[i] and 'leased' or died[i] and 'dead' or s.head and 'waiting'
    s.is = s.was
    state[key], order[#order + 1] = s, key
  end

  local kind
  if s.is and sub(when, 2, 2) == '1' then
    kind = 5 -- Exists
  elseif s.is == 'waiting' then
    kind = 2 -- Replaced
  elseif s.is == 'leased' then
    kind = 4 -- Succeeds
    if not s.succ then pending = pending + 1 end
  elseif max_pending > 0 and pending >= max_pending then
    kind = 6 -- Refused
  else
    kind = s.is == 'dead' and 3 or 1 -- ReplacedDead, Created
    pending = pending + 1
  end

  local due = 0
  if kind < 5 then
    scheduled = scheduled + 1
    due = tonumber(sub(when, 3))
    if sub(when, 1, 1) == '+' then due = after(due) end
    if kind == 4 then
      s.succ, s.succ_due, s.succ_body = ARGV[4 + 4 * i], due, ARGV[5 + 4 * i]
    else
      s.is, s.new, s.due, s.body = 'waiting', ARGV[4 + 4 * i], due, ARGV[5 + 4 * i]
    end
  end
  answer[i] = pack('<Bi8', kind, due)
end

local earliest, moved
for i = 1, #order do
  local key = order[i]
  local s = state[key]
  if s.new then
    if s.was == 'waiting' then
      moved = true
      if lane(s.head) ~= lane(s.new) then put(-lane(s.head), key) end
    elseif s.was == 'dead' then
      put('-d', key)
    end
    if s.was then put('-r', key) end
    if s.head and big(s.head) then put('-B', ref(s.head)) end
    wait(key, s.new, s.due)
    put('+b', key, s.new)
    if s.body ~= '' then put('+B', ref(s.new), s.body) end
    if not earliest or s.due < earliest then earliest = s.due end
  end
  if s.succ_due then
    if s.old_succ and big(sub(s.old_succ, 9)) then put('-B', ref(s.old_succ)) end
    put('+n', key, pack('<i8', s.succ_due) .. s.succ)
    if s.succ_body ~= '' then put('+B', ref(s.succ), s.succ_body) end
  end
end

reply = concat(answer)
call('ZADD', leases, 'XX', '0', '')
flush()
if scheduled > 0 then call('HINCRBY', meta, 'c', scheduled) end
remember('schedule', reply)

if earliest and (next_due == 0 or earliest < next_due) then
  publish('E' .. int(earliest))
  next_due = earliest
elseif moved then
  return {reply, horizon()}
end
return {reply, now, next_due, next_end}
