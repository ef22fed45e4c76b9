-- sign.lua notes that a worker lives, or leaves, and returns who lives.
--
-- KEYS   1 sorted set: worker → until when, ms; it expires with the last
-- ARGV   1 clock, as in common.lua, 2 worker, 3 ms, or 0 if it leaves
-- Reply  workers
-- Cost   O(log N) and all workers; at most 6 calls
--
-- The first write removes: after it Redis refuses none at maxmemory.

local t, clock = redis.call('TIME'), ARGV[1]
local now = math.floor(t[1] * 1000 + t[2] / 1000)
if string.sub(clock, 1, 1) == '=' then
  now = tonumber(string.sub(clock, 2))
elseif clock ~= '' then
  now = now + clock
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if ARGV[3] == '0' then
  redis.call('ZREM', KEYS[1], ARGV[2])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), ARGV[2])
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', last - now)) end
return redis.call('ZRANGE', KEYS[1], 0, -1)
