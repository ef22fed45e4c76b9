-- announce.lua publishes on the shard's channel.
--
-- ARGV   4 message
-- Reply  the command's: the number of receivers, or an error
-- Cost   O(subscribers); 2 calls

return publish(ARGV[4])
