-- horizons.lua returns the horizon of a shard.
--
-- Reply  present, next due, next lease end
-- Cost   O(log N); 7 calls

return {horizon()}
