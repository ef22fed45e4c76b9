-- claim.lua leases due timers and plans, and handles expired leases.
--
-- ARGV   4 order, 5 worker, 6 token, 7 maximum of timers, 8 maximum bytes of bodies, 9 lease ms,
--        10 maximum of attempts, 11 first lane, or 4 to begin with the expired leases, 12 MaxDead,
--        13 MaxDeadAge ms or 0, 14 number of shards, 15 maximum of plans
-- Reply  a list, for each lease: key, head, body if the head refers to it or empty, run, end
--        of the lease, history of a plan or empty; present, next due, next lease end; deadLettered;
--        repaired
-- Cost   O(log N) for each of at most 500 timers or plans from each lane and of 100 expired
--        leases, which cost twice; at most 100 calls, and 100 fields to find a head without
--        a state
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory. The log is
-- written even if there is nothing to lease: a copy of the claim that arrives later must not lease.

local token, max_timers, max_bytes, lease = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local kind = 'claim ' .. ARGV[5]

-- A claim that is sent again, by the same call or another, returns those of its leases that it still
-- has. If a claim leased nothing, the log has under its number the reply to the previous claim.
-- A reply begins with the time until which it is kept, ms (8 bytes).
local last, refused, other = admit(kind)
if refused then return refused end
local until_ms = other and unstruct('<i8', other)
last, other = last and sub(last, 9), other and sub(other, 9)
if not last and other and sub(other, 1, 16) == token then last = other end
if last then
  local deadLettered, repaired, keys = 0, 0, {}
  if sub(last, 1, 16) == token then
    local at
    deadLettered, repaired, at = unstruct('<I4I4', last, 17)
    while at <= #last do keys[#keys + 1], at = unstruct('<I2c0', last, at) end
  end
  local head_of, run_of, end_of = mget(heads, keys), mget(runs, keys), zmscore(leases, keys)
  local held, refs = {}, {}
  for i = 1, #keys do
    local head, run = head_of[i], run_of[i]
    if head and run and end_of[i] and sub(run, 17, 32) == token then
      held[#held + 1] = i
      if big(head) then refs[#refs + 1] = ref(head) end
    end
  end
  local body_of, history_of, list, at = mget(blobs, refs), historiesof(keys), {}, 0
  for _, i in ipairs(held) do
    local body, n = '', #list
    if big(head_of[i]) then
      at = at + 1
      body = body_of[at] or ''
    end
    list[n + 1], list[n + 2], list[n + 3] = keys[i], head_of[i], body
    list[n + 4], list[n + 5], list[n + 6] = run_of[i], tonumber(end_of[i]), history_of[keys[i]] or ''
  end
  local present, next_due, next_end = horizon()
  return {list, present, next_due, next_end, deadLettered, repaired}
end

local last_fence, shards = unpack(call('HMGET', meta, 'f', 's'))
if shards and shards ~= ARGV[14] then return redis.error_reply('SHARDS ' .. shards) end
call('ZREM', leases, '')

local deadLettered, repaired = 0, 0

-- Every head has one state. If the counts differ, some key was lost: check a hundred heads from
-- the point where the last claim stopped.
local entries, filled = call('ZCARD', leases) + call('ZCARD', dead), {}
for i = 1, 5 do
  local n = call('ZCARD', lanes[i])
  entries, filled[i] = entries + n, n > 0
end
if entries ~= call('HLEN', heads) then
  local page = call('HSCAN', heads, call('HGET', meta, 'h') or '0', 'COUNT', '100')
  local keys, found = {}, page[2]
  for i = 1, #found, 2 do keys[#keys + 1] = found[i] end
  local end_of, died, due_of = zmscore(leases, keys), zmscore(dead, keys), {}
  for i = 1, 5 do due_of[i] = zmscore(lanes[i], keys) end
  for i = 1, #keys do
    local head = found[2 * i]
    if not end_of[i] and not died[i] and not due_of[lane(head)][i] then
      forget(keys[i], head)
      put('-n', keys[i])
      repaired = repaired + 1
    end
  end
  flush()
  if page[1] == '0' or entries == call('HLEN', heads) then
    call('HDEL', meta, 'h')
  else
    call('HSET', meta, 'h', page[1])
  end
elseif entries == 0 then
  call('DEL', blobs, runs, succ, index, histories) -- empty, unless some key was lost
end

-- Expired leases. renewable and renewable_plans collect those to lease again. If the log of this
-- claim has expired, it can find leases of its own: then it picks these, and no others.
local picks, plans, renewable, renewable_plans, mine = {}, {}, {}, {}, false
local succeeded, due_before = false, nil
local expired = call('ZRANGEBYSCORE', leases, '-inf', int(now), 'LIMIT', '0', '100')
if #expired > 0 then
  local head_of, run_of, succ_of = mget(heads, expired), mget(runs, expired), mget(succ, expired)
  for i = 1, #expired do
    local key, head, run, successor = expired[i], head_of[i], run_of[i], succ_of[i]
    local whole = head and run
    if not whole then repaired = repaired + 1 end
    if whole and cancelled(run) then note(key, 3, run) end
    if successor then
      put('-l', key)
      succeeded = true
      succeed(key, head, successor)
    elseif not head or run and cancelled(run) then
      put('-l', key)
      forget(key, head)
    elseif not run then -- its due time was lost, but has passed: now is not early
      put('-l', key)
      wait(key, head, now)
    elseif sub(run, 17, 32) == token then
      local list = isplan(key) and plans or picks
      list[#list + 1], mine = {key = key, head = head, run = run}, true
    elseif isplan(key) then
      renewable_plans[#renewable_plans + 1] = {key = key, head = head, run = run}
    elseif attempts(run) >= tonumber(ARGV[10]) then
      put('-l', key)
      put('+d', int(now), key)
      note(key, 2, run)
      deadLettered = deadLettered + 1
    else
      renewable[#renewable + 1] = {key = key, head = head, run = run}
    end
  end
  local woken = applynotes()
  if succeeded or woken then due_before = select(2, horizon()) end
  flush()
end

-- Plans: first those with expired leases.
local keys, max_plans = {}, tonumber(ARGV[15])
if not mine then
  for i = 1, min(#renewable_plans, max_plans) do plans[i] = renewable_plans[i] end
  local rest = max_plans - #plans
  if rest > 0 and (filled[5] or #expired > 0) then
    local due = call('ZRANGEBYSCORE', lanes[5], '-inf', int(now), 'WITHSCORES', 'LIMIT', '0', rest)
    for i = 1, #due, 2 do
      keys[#keys + 1] = due[i]
      plans[#plans + 1] = {key = due[i], due = tonumber(due[i + 1]), lane = 5, at = #keys}
    end
  end
end

-- Timers: one from each lane in turn, and then one of the expired leases.
local due = {}
for i = 1, 4 do
  due[i] = {}
  if filled[i] or #expired > 0 then -- which may wait now
    due[i] = call('ZRANGEBYSCORE', lanes[i], '-inf', int(now), 'WITHSCORES', 'LIMIT', '0', ARGV[7])
  end
end
local position = {0, 0, 0, 0, 0}
local turn, idle = 0, mine and 5 or 0
if tonumber(ARGV[11]) == 4 then turn = 4 end -- begins with the expired leases
while #picks < max_timers and idle < 5 do
  local from = 5
  if turn < 4 then from = (ARGV[11] + turn) % 4 + 1 end
  local at = position[from] + 1
  local pick
  if from == 5 then
    pick = renewable[at]
  elseif due[from][2 * at - 1] then
    pick = {key = due[from][2 * at - 1], due = tonumber(due[from][2 * at]), lane = from}
    pick.at = #keys + 1
    keys[pick.at] = pick.key
  end
  if pick then
    position[from], idle = at, 0
    picks[#picks + 1] = pick
  else
    idle = idle + 1
  end
  turn = (turn + 1) % 5
end

local head_of, run_of = mget(heads, keys), mget(runs, keys)
local taken, refs = {}, {}
local function take(list)
  local bytes, some = 0, false
  for i = 1, #list do
    local p = list[i]
    if p.lane then p.head, p.run = head_of[p.at], run_of[p.at] end
    if not p.head or lane(p.head) ~= (p.lane or lane(p.head)) then
      -- A member of a lane without a record, or a second one. The record in the right lane stays.
      put(-p.lane, p.key)
      if not p.head then
        put('-r', p.key)
        put('-n', p.key)
        if isplan(p.key) then unindex(p.key) end
      end
      repaired = repaired + 1
    else
      local size = bodysize(p.head)
      if some and bytes + size > max_bytes then break end
      bytes, some = bytes + size, true
      taken[#taken + 1] = p
      if big(p.head) then
        p.ref = #refs + 1
        refs[p.ref] = ref(p.head)
      end
    end
  end
end
take(plans)
take(picks)

local body_of, plan_keys = mget(blobs, refs), {}
for i = 1, #plans do plan_keys[i] = plans[i].key end
local history_of = historiesof(plan_keys)
local list, kept = {}, {}
local first = math.max(tonumber(last_fence or 0) + 1, micros)
local lease_end = after(lease)
local lease_text = int(lease_end)
for i = 1, #taken do
  local p = taken[i]
  local body = ''
  if p.ref then body = body_of[p.ref] end
  if not body then
    if p.lane then put(-p.lane, p.key) else put('-l', p.key) end
    forget(p.key, p.head)
    repaired = repaired + 1
  else
    local tried, err, was_due = 0, '', p.due
    if p.run then
      tried, err = attempts(p.run), lasterror(p.run)
      if sub(p.run, 17, 32) == token then tried = tried - 1 end -- the same attempt: never begun
      if not p.lane then was_due = rundue(p.run) end
    end
    local run = newrun(was_due, first + #kept, token, tried + 1, 0, err)
    if p.lane then put(-p.lane, p.key) end
    put('+l', lease_text, p.key)
    put('+r', p.key, run)
    local n = #list
    list[n + 1], list[n + 2], list[n + 3], list[n + 4], list[n + 5] = p.key, p.head, body, run, lease_end
    list[n + 6] = history_of[p.key] or ''
    kept[#kept + 1] = pack('<I2c0', #p.key, p.key)
  end
end
flush()
if #kept > 0 then call('HSET', meta, 'f', int(first + #kept - 1), 's', ARGV[14]) end
if #kept > 0 or deadLettered > 0 or repaired > 0 then
  other = token .. pack('<I4I4', deadLettered, repaired) .. concat(kept)
end
local keep_ms = math.max(KEEP, #kept > 0 and lease or 0)
local payload = pack('<i8', math.max(until_ms or 0, now + keep_ms)) .. (other or '')
remember(kind, payload, keep_ms) -- without its log, a claim would lease others

-- The first claim of a worker removes replies to others, which may be gone, after their time.
if not until_ms then
  local fields, old = call('HRANDFIELD', log, '100', 'WITHVALUES'), {}
  for i = 1, #fields, 2 do
    if sub(fields[i], 1, 6) == 'claim ' and unstruct('<i8', fields[i + 1], 9) < now then
      old[#old + 1] = fields[i]
    end
  end
  if #old > 0 then call('HDEL', log, unpack(old)) end
end

-- Remove the oldest dead letters.
local letters = call('ZCARD', dead)
if letters > 0 then
  local excess = min(letters - tonumber(ARGV[12]), 500)
  local old = {}
  if excess > 0 then old = call('ZRANGE', dead, '0', excess - 1) end
  if ARGV[13] ~= '0' then
    local aged = call('ZRANGEBYSCORE', dead, '-inf', '(' .. int(now - ARGV[13]), 'LIMIT', '0', '500')
    if #aged > #old then old = aged end
  end
  if #old > 0 then
    local heads_of_old = mget(heads, old)
    for i = 1, #old do
      put('-d', old[i])
      forget(old[i], heads_of_old[i])
    end
    flush()
    call('HINCRBY', meta, 'x', #old)
  end
end

local present, next_due, next_end = horizon()
if due_before and next_due ~= 0 and (due_before == 0 or next_due < due_before) then
  publish('E' .. int(next_due))
end
return {list, present, next_due, next_end, deadLettered, repaired}
