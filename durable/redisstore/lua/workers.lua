-- workers.lua lists the workers whose heartbeats are kept.
--
-- KEYS   as in heartbeat.lua
-- ARGV   1 clock, as in common.lua
-- Reply  present; for each worker its name, when its heartbeat expires, ms, and the hash's value
--        or empty; by expiry, including '' and the workers that the next heartbeat removes
-- Cost   O(N); 3 calls

local t, clock = redis.call('TIME'), ARGV[1]
local now = math.floor(t[1] * 1000 + t[2] / 1000)
if string.sub(clock, 1, 1) == '=' then
  now = tonumber(string.sub(clock, 2))
elseif clock ~= '' then
  now = now + clock
end
local list, reply, status_of = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), {now}, {}
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do status_of[all[i]] = all[i + 1] end
for i = 1, #list, 2 do
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = list[i], tonumber(list[i + 1]), status_of[list[i]] or ''
end
return reply
