-- purge.lua removes dead letters.
--
-- ARGV   4 order, then keys
-- Reply  how many were removed, 4 bytes; present
-- Cost   O(log N) for each; at most 12 calls
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory.

local reply, refused = admit('purge')
if refused then return refused end
if reply then return {reply, now} end

local keys = {}
for i = 5, #ARGV do keys[#keys + 1] = ARGV[i] end
local head_of, died = mget(heads, keys), zmscore(dead, keys)
local handled, n = {}, 0
for i = 1, #keys do
  local key = keys[i]
  if died[i] and not handled[key] then
    handled[key], n = true, n + 1
    put('-d', key)
    forget(key, head_of[i])
  end
end

reply = pack('<I4', n)
call('ZREM', leases, '')
flush()
remember('purge', reply)
return {reply, now}
