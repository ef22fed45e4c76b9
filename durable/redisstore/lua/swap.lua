-- swap.lua creates, replaces and removes plans, in order, and adds their occurrences.
--
-- ARGV   4 order, 5 MaxPending or 0, 6 token, 7 lease ms, 8 maximum of leases, then for each plan:
--        key, 16 bytes ID that it must have, head or empty if it is to be removed, body if the
--        head refers to it or empty, due ms, wake (a digit), how many ends were seen, number of
--        occurrences; and for each of these: key, "=" due ms or "+" ms from now, head, body if
--        the head refers to it or empty
-- Reply  for each plan 1 byte (store.SwapResult), and for each leased occurrence the index of
--        its plan (2 bytes) and its own in the plan (1 byte), fence, due ms and end of the
--        lease (8 bytes each); present, next due, next lease end
-- Cost   O(log N) for each plan and occurrence; at most 53 calls
--
-- If the script adds something, the first write adds nothing, but Redis refuses it at maxmemory:
-- then nothing has changed. Otherwise it removes nothing, and after it Redis refuses no write.

local reply, refused = admit('swap')
if refused then return refused end
if reply then return {reply, horizon()} end

local _, next_due = horizon()
local max_pending, pending = tonumber(ARGV[5]), 0
local token, lease, max_leases = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
if max_pending > 0 then
  pending = call('ZCARD', leases) + call('HLEN', succ)
  for i = 1, 5 do pending = pending + call('ZCARD', lanes[i]) end
end

local swaps, keys, at = {}, {}, 9
while at <= #ARGV do
  local p = {
    key = ARGV[at], was = ARGV[at + 1], head = ARGV[at + 2], body = ARGV[at + 3], due = tonumber(ARGV[at + 4]),
    wake = tonumber(ARGV[at + 5]), seen = tonumber(ARGV[at + 6]), first = at + 8, n = tonumber(ARGV[at + 7]),
  }
  swaps[#swaps + 1], keys[#keys + 1] = p, p.key
  for i = 1, p.n do keys[#keys + 1] = ARGV[p.first + 4 * (i - 1)] end
  at = p.first + 4 * p.n
end

-- The state of each plan and occurrence after each swap is kept here, and written at the end.
local head_of, history_of = mget(heads, keys), historiesof(keys)
local plans, order, exists, old = {}, {}, {}, {}
for i = 1, #keys do
  exists[keys[i]] = head_of[i]
  if max_leases > 0 and head_of[i] and not isplan(keys[i]) then old[#old + 1] = keys[i] end
end

for i = 1, #keys do
  local key = keys[i]
  if isplan(key) and not plans[key] then
    local head = head_of[i]
    plans[key] = {
      id = head and sub(head, 3, 18) or UNLEASED, old = head, history = head and history_of[key],
      swapped = false, changed = false, head = false, body = false, due = false,
    }
    order[#order + 1] = key
  end
end

-- Occurrences leased under the token were created by an earlier request of this call.
local run_of, end_of, mine = mget(runs, old), zmscore(leases, old), {}
for i = 1, #old do
  local run = run_of[i]
  if run and end_of[i] and sub(run, 17, 32) == token then mine[old[i]] = {run, tonumber(end_of[i])} end
end

local taken, lease_end, next_fence = {}, after(lease), nil
local lease_text = int(lease_end)
if max_leases > 0 then next_fence = math.max(tonumber(call('HGET', meta, 'f') or 0) + 1, micros) end
local first_fence = next_fence

-- leased adds the lease of an occurrence to the reply.
local function leased(plan, position, run, till)
  taken[#taken + 1] = pack('<I2BI8i8i8', plan - 1, position, fence(run), rundue(run), till)
end

local SWAPPED, LOST, REFUSED = char(1), char(2), char(3) -- store.SwapResult
local answer, adds, created = {}, false, 0
for i = 1, #swaps do
  local p = swaps[i]
  local s = plans[p.key]
  local added, removes = s.id == UNLEASED and 1 or 0, p.head == ''
  for e = p.first, p.first + 4 * p.n - 1, 4 do
    if not exists[ARGV[e]] then added = added + 1 end
  end
  if s.id ~= p.was then
    answer[i] = LOST
  elseif removes then
    answer[i] = SWAPPED
    s.swapped, s.id, s.head, s.history = true, UNLEASED, nil, nil
    pending = pending - 1
  elseif max_pending > 0 and added > 0 and pending + added > max_pending then
    answer[i] = REFUSED
  else
    answer[i] = SWAPPED
    pending, adds = pending + added, adds or added > 0
    s.swapped, s.id, s.head, s.body, s.due = true, sub(p.head, 3, 18), p.head, p.body, p.due
    if not s.history then s.history, s.changed = newhistory(), true end
    local wake = p.wake
    if wake > 0 then
      local done, died, cancels = counts(s.history)
      if (wake == 1 and died or done + died + cancels) > p.seen then s.due, wake = now, 0 end
    end
    if wake ~= wakeof(s.history) then s.history, s.changed = setwake(s.history, wake), true end
  end
  for e = p.first, p.first + 4 * p.n - 1, 4 do
    local key, when, head, body = ARGV[e], ARGV[e + 1], ARGV[e + 2], ARGV[e + 3]
    local position = (e - p.first) / 4
    if mine[key] then
      leased(i, position, unpack(mine[key]))
      mine[key] = nil -- each is answered once
    elseif answer[i] == SWAPPED and not exists[key] then
      local due = tonumber(sub(when, 2))
      if sub(when, 1, 1) == '+' then due = after(due) end
      if due <= now and #taken < max_leases then
        local run = newrun(due, next_fence, token, 1, 0, '')
        next_fence = next_fence + 1
        put('+l', lease_text, key)
        put('+r', key, run)
        leased(i, position, run, lease_end)
      else
        wait(key, head, due)
      end
      put('+b', key, head)
      if body ~= '' then put('+B', ref(head), body) end
      exists[key], created = true, created + 1
    end
  end
end

for i = 1, #order do
  local key = order[i]
  local s = plans[key]
  if s.swapped then
    put('-l', key) -- a lease ends with the swap
    put('-r', key)
    if s.old and big(s.old) then put('-B', ref(s.old)) end
    if s.head then
      wait(key, s.head, s.due)
      put('+b', key, s.head)
      if s.body ~= '' then put('+B', ref(s.head), s.body) end
      if not history_of[key] then put('+i', '0', key) end -- it is written before the history
      if s.changed then put('+h', key, s.history) end
    else
      put(-5, key)
      put('-b', key)
      unindex(key)
    end
  end
end

reply = concat(answer) .. concat(taken)
if adds then call('ZADD', leases, 'XX', '0', '') else call('ZREM', leases, '') end
flush()
if next_fence ~= first_fence then call('HSET', meta, 'f', int(next_fence - 1)) end
if created > 0 then call('HINCRBY', meta, 'c', created) end
remember('swap', reply)

local present, due, till = horizon()
if due ~= 0 and (next_due == 0 or due < next_due) then publish('E' .. int(due)) end
return {reply, present, due, till}
