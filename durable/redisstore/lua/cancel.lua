-- cancel.lua removes waiting timers, and marks leased ones.
--
-- ARGV   4 order, then keys
-- Reply  for each 1 byte (store.CancelResult); present
-- Cost   O(log N) for each; at most 33 calls
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory.

local reply, refused = admit('cancel')
if refused then return refused end
if reply then return {reply, now} end

local keys = {}
for i = 5, #ARGV do keys[#keys + 1] = ARGV[i] end
local head_of, end_of, died = mget(heads, keys), zmscore(leases, keys), zmscore(dead, keys)
local run_of, succ_of = mget(runs, keys), mget(succ, keys)
local handled, answer, marked = {}, {}, {}
for i = 1, #keys do
  local key, head, run = keys[i], head_of[i], run_of[i]
  answer[i] = char(3) -- NotFound
  if end_of[i] and run then
    answer[i] = char(2) -- Running
    if not handled[key] then
      if succ_of[i] then
        put('-n', key)
        if big(sub(succ_of[i], 9)) then put('-B', ref(succ_of[i])) end
      end
      put('+r', key, sub(run, 1, 36) .. char(1) .. lasterror(run))
      marked[#marked + 1] = holder(run) .. pack('<I2c0', #key, key)
    end
  elseif head and not handled[key] and not died[i] then
    answer[i] = char(1) -- Cancelled
    put(-lane(head), key)
    forget(key, head)
    note(key, 3, run)
  end
  handled[key] = true
end

reply = concat(answer)
local woken = applynotes()
local next_due = woken and select(2, horizon())
call('ZREM', leases, '')
flush()
remember('cancel', reply)
if woken and (next_due == 0 or now < next_due) then publish('E' .. int(now)) end
if #marked > 0 then publish('C' .. concat(marked)) end
return {reply, now}
