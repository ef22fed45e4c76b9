-- countdue.lua counts waiting timers by due time.
--
-- ARGV   4 and up: the edges, ms, in order, at least two
-- Reply  for each edge except the last, how many timers are due from it on and before the next
-- Cost   O(log N) for each lane and edge; at most 800 calls

local counts = {}
for e = 4, #ARGV - 1 do counts[e - 3] = 0 end
for i = 1, 4 do
  if call('EXISTS', lanes[i]) == 1 then
    for e = 4, #ARGV - 1 do
      counts[e - 3] = counts[e - 3] + call('ZCOUNT', lanes[i], ARGV[e], '(' .. ARGV[e + 1])
    end
  end
end
return counts
