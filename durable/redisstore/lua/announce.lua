-- announce.lua publishes on the shard's channel.
--
-- ARGV   4 message
-- Reply  nothing
-- Cost   O(subscribers); 2 calls

publish(ARGV[4])
return false
