-- get.lua reads one timer or plan.
--
-- ARGV   4 key
-- Reply  head, body if the head refers to it or empty, run or empty, due or 0, end of the
--        lease or 0, time of death or 0, 8 bytes due of the successor or empty, history or
--        empty; or nothing if there is no such timer
-- Cost   O(log N); at most 9 calls

local key = ARGV[4]
local head = call('HGET', heads, key)
if not head then return false end
local body = big(head) and call('HGET', blobs, ref(head)) or ''
return {
  head, body, call('HGET', runs, key) or '',
  tonumber(call('ZSCORE', lanes[lane(head)], key) or 0),
  tonumber(call('ZSCORE', leases, key) or 0),
  tonumber(call('ZSCORE', dead, key) or 0),
  sub(call('HGET', succ, key) or '', 1, 8),
  isplan(key) and call('HGET', histories, key) or '',
}
