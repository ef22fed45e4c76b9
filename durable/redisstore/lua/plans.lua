-- plans.lua reads a page of the plans, in order of their keys.
--
-- ARGV   4 the key after which it begins, 5 most plans, 6 most bytes of bodies
-- Reply  for each: key, head, body if the head refers to it or empty, run or empty, due or 0,
--        end of the lease or 0, history
-- Cost   O(log N) for each; 7 calls, and as many again for each page of plans that were lost

local after_key, list = ARGV[4], {}
repeat
  local from = after_key == '' and '-' or '(' .. after_key
  local keys = call('ZRANGEBYLEX', index, from, '+', 'LIMIT', 0, ARGV[5])
  local head_of, run_of, history_of = mget(heads, keys), mget(runs, keys), mget(histories, keys)
  local due_of, end_of = zmscore(lanes[5], keys), zmscore(leases, keys)
  local page, refs, bytes = {}, {}, 0
  for i = 1, #keys do
    local head = head_of[i]
    after_key = keys[i]
    if head and (due_of[i] or end_of[i]) then
      bytes = bytes + bodysize(head)
      if #page > 0 and bytes > tonumber(ARGV[6]) then break end
      page[#page + 1] = i
      if big(head) then put(refs, ref(head)) end
    end
  end
  local body_of, at = mget(blobs, refs), 0
  for _, i in ipairs(page) do
    local body, n = '', #list
    if big(head_of[i]) then
      at = at + 1
      body = body_of[at] or ''
    end
    list[n + 1], list[n + 2], list[n + 3], list[n + 4] = keys[i], head_of[i], body, run_of[i] or ''
    list[n + 5], list[n + 6] = tonumber(due_of[i] or 0), tonumber(end_of[i] or 0)
    list[n + 7] = history_of[i] or NEW
  end
until #list > 0 or #keys == 0
return list
