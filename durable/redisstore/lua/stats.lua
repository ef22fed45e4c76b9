-- stats.lua returns the counts of a shard.
--
-- Reply  present, next due, next lease end; waiting timers, of these overdue, leased,
--        dead, dropped, plans, of these waiting and overdue, scheduled
-- Cost   O(log N); 20 calls

local waiting, overdue = 0, 0
for i = 1, 4 do
  waiting = waiting + call('ZCARD', lanes[i])
  overdue = overdue + call('ZCOUNT', lanes[i], '-inf', int(now))
end
local present, next_due, next_end = horizon()
local dropped, scheduled = unpack(call('HMGET', meta, 'x', 'c'))
return {
  present, next_due, next_end, waiting, overdue, call('ZCARD', leases), call('ZCARD', dead),
  tonumber(dropped or 0),
  call('ZCARD', index), call('ZCOUNT', lanes[5], '-inf', int(now)), tonumber(scheduled or 0),
}
