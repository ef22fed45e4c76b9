-- purge.lua removes dead letters.
--
-- ARGV   4 number of the request, then keys
-- Reply  how many there were, 4 bytes
-- Cost   O(log N) for each; at most 10 calls
--
-- The first write is DEL, which Redis lets through at maxmemory, and then all that follow.

local reply, overtaken = replayed()
if overtaken then return overtaken end
if reply then return {reply} end

local keys = {}
for i = 5, #ARGV do keys[#keys + 1] = ARGV[i] end
local head_of, died = mget(heads, keys), zmscore(dead, keys)
local over, n = {}, 0
for i = 1, #keys do
  local key = keys[i]
  if died[i] and not over[key] then
    over[key], n = true, n + 1
    put(rem_d, key)
    forget(key, head_of[i])
  end
end

reply = pack('<I4', n)
call('DEL', log)
flush()
remember(reply)
return {reply}
