-- open.lua creates or reads a shard's record.
--
-- ARGV   4 number of shards
-- Reply  the number of shards in the record; present
-- Cost   O(1); 3 calls

local have = call('HGET', meta, 's')
if not have then
  call('HSET', meta, 's', ARGV[4])
  have = ARGV[4]
end
return {have, now}
