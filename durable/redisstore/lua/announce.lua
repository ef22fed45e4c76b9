-- announce.lua publishes on the shard's channel.
--
-- ARGV   4 message
-- Reply  1, or the error of the command
-- Cost   O(subscribers); 2 calls

local done = publish(ARGV[4])
if type(done) == 'table' and done.err then return done end
return 1
