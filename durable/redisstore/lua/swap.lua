-- swap.lua creates, replaces and removes plans, in order, and adds their occurrences.
--
-- ARGV   4 order, 5 MaxPending or 0, then for each plan:
--        key, 16 bytes ID that it must have, head or empty if it is to be removed, body if the
--        head refers to it or empty, due ms, wake (a digit), how many ends were seen, number of
--        occurrences; and for each of these: key, "=" due ms or "+" ms from now, head, body if
--        the head refers to it or empty
-- Reply  for each plan 1 byte (store.SwapResult); present, next due, next lease end
-- Cost   O(log N) for each plan and occurrence; at most 48 calls
--
-- If something is added, the first write adds nothing, but Redis refuses it at maxmemory: then
-- nothing was changed. Otherwise it removes nothing, and after it Redis refuses none.

local reply, refused = admit('swap')
if refused then return refused end
if reply then return {reply, horizon()} end

local _, next_due = horizon()
local most, pending = tonumber(ARGV[5]), 0
if most > 0 then
  pending = call('ZCARD', leases) + call('HLEN', succ)
  for i = 1, 5 do pending = pending + call('ZCARD', lanes[i]) end
end

local swaps, keys, at = {}, {}, 6
while at <= #ARGV do
  local p = {
    key = ARGV[at], was = ARGV[at + 1], head = ARGV[at + 2], body = ARGV[at + 3], due = tonumber(ARGV[at + 4]),
    wake = tonumber(ARGV[at + 5]), seen = tonumber(ARGV[at + 6]), first = at + 8, n = tonumber(ARGV[at + 7]),
  }
  swaps[#swaps + 1], keys[#keys + 1] = p, p.key
  for i = 1, p.n do keys[#keys + 1] = ARGV[p.first + 4 * (i - 1)] end
  at = p.first + 4 * p.n
end

-- What each plan and occurrence is after each swap is kept here, and written at the end.
local head_of, history_of = mget(heads, keys), historiesof(keys)
local plans, order, exists = {}, {}, {}
for i = 1, #keys do exists[keys[i]] = head_of[i] end
for i = 1, #keys do
  local key = keys[i]
  if isplan(key) and not plans[key] then
    local head = head_of[i]
    plans[key] = {id = head and sub(head, 3, 18) or NOBODY, old = head, history = head and history_of[key]}
    order[#order + 1] = key
  end
end

local answer, adds = {}, false
for i = 1, #swaps do
  local p = swaps[i]
  local s = plans[p.key]
  local added, removes = s.id == NOBODY and 1 or 0, p.head == ''
  for e = p.first, p.first + 4 * p.n - 1, 4 do
    if not exists[ARGV[e]] then added = added + 1 end
  end
  if s.id ~= p.was then
    answer[i] = char(2) -- SwapLost
  elseif removes then
    answer[i] = char(1) -- Swapped
    s.swapped, s.id, s.head, s.history = true, NOBODY, nil, nil
    pending = pending - 1
  elseif most > 0 and added > 0 and pending + added > most then
    answer[i] = char(3) -- SwapRefused
  else
    answer[i] = char(1) -- Swapped
    pending, adds = pending + added, adds or added > 0
    s.swapped, s.id, s.head, s.body, s.due = true, sub(p.head, 3, 18), p.head, p.body, p.due
    if not s.history then s.history, s.changed = newhistory(), true end
    local wake = p.wake
    if wake > 0 then
      local done, died, cancels = counts(s.history)
      if (wake == 1 and died or done + died + cancels) > p.seen then s.due, wake = now, 0 end
    end
    if wake ~= wakeof(s.history) then s.history, s.changed = setwake(s.history, wake), true end
    for e = p.first, p.first + 4 * p.n - 1, 4 do
      local key, when, head, body = ARGV[e], ARGV[e + 1], ARGV[e + 2], ARGV[e + 3]
      if not exists[key] then
        local due = tonumber(sub(when, 2))
        if sub(when, 1, 1) == '+' then due = after(due) end
        wait(key, head, due)
        put(set_h, key, head)
        if body ~= '' then put(set_b, ref(head), body) end
        exists[key] = true
      end
    end
  end
end

for i = 1, #order do
  local key = order[i]
  local s = plans[key]
  if s.swapped then
    put(rem_l, key) -- a lease ends with the swap
    put(del_r, key)
    if s.old and big(s.old) then put(del_b, ref(s.old)) end
    if s.head then
      wait(key, s.head, s.due)
      put(set_h, key, s.head)
      if s.body ~= '' then put(set_b, ref(s.head), s.body) end
      if not history_of[key] then put(add_i, '0', key) end -- it is written before the history
      if s.changed then put(set_y, key, s.history) end
    else
      put(rem_w[5], key)
      put(del_h, key)
      unlist(key)
    end
  end
end

reply = concat(answer)
if adds then call('ZADD', leases, 'XX', 0, '') else call('ZREM', leases, '') end
flush()
remember('swap', reply)

local present, due, lease_end = horizon()
if due ~= 0 and (next_due == 0 or due < next_due) then publish('E' .. int(due)) end
return {reply, present, due, lease_end}
