-- sign.lua records that a worker lives, or leaves, and returns who lives.
--
-- KEYS   1 sorted set: worker → until when, ms; '' → the time of the last request. It expires
--        with the last worker.
-- ARGV   1 clock, as in common.lua, 2 worker, 3 ms, or 0 if it leaves, 4 deadline
-- Reply  present; workers
-- Cost   O(log N) and all workers; at most 9 calls
--
-- The first write removes: after it Redis refuses none at maxmemory.

local call, key = redis.call, KEYS[1]
local function int(x) return string.format('%.0f', x) end

local t, clock = call('TIME'), ARGV[1]
local now = math.floor(t[1] * 1000 + t[2] / 1000)
if string.sub(clock, 1, 1) == '=' then
  now = tonumber(string.sub(clock, 2))
elseif clock ~= '' then
  now = now + clock
end
if now >= tonumber(ARGV[4]) then return redis.error_reply('EXPIRED ' .. int(now)) end

-- If the clock has gone back, all go with it: each keeps what it had left.
local back = tonumber(call('ZSCORE', key, '') or 0) - now
call('ZREMRANGEBYSCORE', key, '-inf', int(now))
call('ZREM', key, '', ARGV[2])
if back > 0 then
  for _, worker in ipairs(call('ZRANGE', key, 0, -1)) do call('ZINCRBY', key, int(-back), worker) end
end
if ARGV[3] ~= '0' then call('ZADD', key, int(now + ARGV[3]), ARGV[2]) end
local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
if last then
  call('ZADD', key, int(now), '')
  call('PEXPIRE', key, int(last - now))
end
local workers = call('ZRANGE', key, 0, -1)
workers[1] = now -- instead of ''
return workers
