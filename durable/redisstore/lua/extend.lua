-- extend.lua makes leases end later.
--
-- ARGV   4 deadline, 5 lease ms, then for each: key, holder (8 bytes fence, 16 bytes token)
-- Reply  for each 1 byte (store.ExtendResult); present; the new end
-- Cost   O(log N) for each; 5 calls
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory.

local refused = late(ARGV[4])
if refused then return refused end

local keys = {}
for i = 6, #ARGV, 2 do keys[#keys + 1] = ARGV[i] end
local run_of, end_of = mget(runs, keys), zmscore(leases, keys)
local lease_end = after(tonumber(ARGV[5]))
local answer = {}
for i = 1, #keys do
  local run = run_of[i]
  if not run or not end_of[i] or holder(run) ~= ARGV[5 + 2 * i] then
    answer[i] = char(3) -- ExtendLost
  elseif cancelled(run) then
    answer[i] = char(2) -- ExtendCancelled
  else
    put('+l', int(lease_end), keys[i])
    answer[i] = char(1) -- Extended
  end
end
call('ZREM', leases, '')
flush()
return {concat(answer), now, lease_end}
