-- look.lua tells what comes next.
--
-- Reply  present, next due, next lease end
-- Cost   O(log N); 7 calls

return {horizon()}
