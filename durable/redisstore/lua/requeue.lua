-- requeue.lua makes dead letters wait again, due at once.
--
-- ARGV   4 order, then keys
-- Reply  for each 1 byte (store.RequeueResult); present, next due, next lease end
-- Cost   O(log N) for each; at most 30 calls
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory.

local reply, refused = admit('requeue')
if refused then return refused end
if reply then return {reply, horizon()} end

local keys = {}
for i = 5, #ARGV do keys[#keys + 1] = ARGV[i] end
local head_of, end_of, died = mget(heads, keys), zmscore(leases, keys), zmscore(dead, keys)
local run_of = mget(runs, keys)
local handled, answer, some = {}, {}, false
for i = 1, #keys do
  local key, head = keys[i], head_of[i]
  if head and died[i] and not handled[key] then
    answer[i] = char(1) -- Requeued
    handled[key], some = true, true
    put('-d', key)
    local err = run_of[i] and lasterror(run_of[i]) or ''
    if err == '' then put('-r', key) else put('+r', key, newrun(now, 0, UNLEASED, 0, 0, err)) end
    wait(key, head, now)
  elseif head or end_of[i] then
    answer[i] = char(2) -- RequeueExists
  else
    answer[i] = char(3) -- RequeueAbsent
  end
end

local next_due = select(2, horizon())
reply = concat(answer)
call('ZREM', leases, '')
flush()
remember('requeue', reply)
if some and (next_due == 0 or now < next_due) then publish('E' .. int(now)) end
return {reply, horizon()}
