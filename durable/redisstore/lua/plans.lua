-- plans.lua reads a page of the plans, in order of their keys.
--
-- ARGV   4 the key that they come after, or empty, 5 limit, 6 maximum bytes of bodies
-- Reply  for each: key, head, body if the head refers to it or empty, run or empty, due or 0,
--        end of the lease or 0, time of death or 0, empty, history or empty
-- Cost   O(log N) for each; at most 9 calls

local from = ARGV[4] == '' and '-' or '(' .. ARGV[4]
local keys = call('ZRANGEBYLEX', index, from, '+', 'LIMIT', '0', ARGV[5])
local head_of, refs, max_bytes = mget(heads, keys), {}, tonumber(ARGV[6])
local page, bytes = {}, 0
for i = 1, #keys do
  local head = head_of[i]
  if head then
    bytes = bytes + bodysize(head)
    if bytes > max_bytes and #page > 0 then break end
    local p = {key = keys[i], head = head}
    page[#page + 1] = p
    if big(head) then
      p.ref = #refs + 1
      refs[p.ref] = ref(head)
    end
  end
end

keys = {}
for i = 1, #page do keys[i] = page[i].key end
local body_of, run_of, history_of = mget(blobs, refs), mget(runs, keys), mget(histories, keys)
local due_of, end_of, died = zmscore(lanes[5], keys), zmscore(leases, keys), zmscore(dead, keys)
local list = {}
for i = 1, #page do
  local p, n = page[i], #list
  list[n + 1], list[n + 2], list[n + 3], list[n + 4] = p.key, p.head, p.ref and body_of[p.ref] or '', run_of[i] or ''
  list[n + 5], list[n + 6], list[n + 7] = tonumber(due_of[i] or 0), tonumber(end_of[i] or 0), tonumber(died[i] or 0)
  list[n + 8], list[n + 9] = '', history_of[i] or ''
end
return list
