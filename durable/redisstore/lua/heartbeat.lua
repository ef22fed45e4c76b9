-- heartbeat.lua marks a worker as live, or removes it, and returns the names of the live workers.
--
-- KEYS   1 sorted set: worker → when its heartbeat expires, ms; '' → the time of the last request
--        2 hash: worker → TTL of its heartbeat, ms (8 bytes), and its status
--        Both expire KEEP after the last heartbeat in them.
-- ARGV   1 clock, as in common.lua, 2 worker, 3 TTL ms, or 0 if it leaves, 4 deadline, 5 status,
--        6 how long an expired heartbeat is kept (KEEP), ms, 7 how many of these at most
-- Reply  present; live workers
-- Cost   O(log N) and all live workers; at most 12 calls, and 3 for each 1000 workers that are
--        removed. After the clock has gone back, one more call for each worker
--
-- The first write only removes: after it, Redis refuses no write at maxmemory.

local call, key, statuses = redis.call, KEYS[1], KEYS[2]
local worker, ttl, kept, max_dead = ARGV[2], ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[7])
local function int(x) return string.format('%.0f', x) end

local t, clock = call('TIME'), ARGV[1]
local now = math.floor(t[1] * 1000 + t[2] / 1000)
if string.sub(clock, 1, 1) == '=' then
  now = tonumber(string.sub(clock, 2))
elseif clock ~= '' then
  now = now + clock
end
if now >= tonumber(ARGV[4]) then return redis.error_reply('EXPIRED ' .. int(now)) end

-- If the clock has gone back, move all heartbeats back with it, so that each keeps its remaining
-- time. Their times move too, because a time is the expiry less the TTL.
local back = tonumber(call('ZSCORE', key, '') or 0) - now
call('ZREM', key, '', worker)
if back > 0 then
  for _, other in ipairs(call('ZRANGE', key, 0, -1)) do call('ZINCRBY', key, int(-back), other) end
end
if ttl == '0' then
  call('HDEL', statuses, worker)
else
  call('ZADD', key, int(now + ttl), worker)
  call('HSET', statuses, worker, struct.pack('<i8', tonumber(ttl)) .. ARGV[5])
end

-- Expired heartbeats are the first in the set.
local dead = call('ZCOUNT', key, '-inf', int(now))
local removed = math.max(call('ZCOUNT', key, '-inf', int(now - kept)), dead - max_dead)
while removed > 0 do
  local part = math.min(removed, 1000)
  local names = call('ZRANGE', key, 0, part - 1)
  call('ZREMRANGEBYRANK', key, 0, part - 1)
  call('HDEL', statuses, unpack(names))
  removed = removed - part
end

local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
if last then
  call('ZADD', key, int(now), '')
  call('PEXPIRE', key, int(last + kept - now))
  call('PEXPIRE', statuses, int(last + kept - now))
end
local workers = call('ZRANGEBYSCORE', key, '(' .. int(now), '+inf')
table.insert(workers, 1, now)
return workers
