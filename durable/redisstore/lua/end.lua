-- end.lua ends runs, each with its outcome.
--
-- ARGV   4 order, then for each: key, holder (8 bytes fence, 16 bytes
--        token), kind (1 byte, store.OutcomeKind) and delay ms, error
-- Reply  for each 1 byte (store.EndResult); present, next due, next lease end
-- Cost   O(log N) for each; at most 41 calls
--
-- The first write removes nothing: after it, Redis refuses no write at maxmemory.

local reply, refused = admit('end')
if refused then return refused end
if reply then return {reply, horizon()} end

local keys = {}
for i = 5, #ARGV, 4 do keys[#keys + 1] = ARGV[i] end
local run_of, end_of = mget(runs, keys), zmscore(leases, keys)
local head_of, succ_of = mget(heads, keys), mget(succ, keys)

local handled, answer, earliest = {}, {}, nil
for i = 1, #keys do
  local key, run, at = keys[i], run_of[i], 1 + 4 * i
  if handled[key] or not run or not end_of[i] or holder(run) ~= ARGV[at + 1] then
    answer[i] = char(2) -- EndLost
  else
    answer[i] = char(cancelled(run) and 3 or succ_of[i] and 4 or 1) -- EndCancelled, EndReplaced, Ended
    handled[key] = true
    put('-l', key)
    local head, kind = head_of[i], byte(ARGV[at + 2])
    local due
    if cancelled(run) and head then note(key, 3, run) end
    if succ_of[i] then
      due = succeed(key, head, succ_of[i])
    elseif kind == 1 or cancelled(run) or not head then -- Done
      forget(key, head)
      if not head then
        answer[i] = char(2) -- the head was lost
      elseif not cancelled(run) then
        note(key, 1, run)
      end
    elseif kind == 5 then -- DeadLetter
      put('+d', int(now), key)
      note(key, 2, run, ARGV[at + 3])
      put('+r', key, newrun(rundue(run), 0, UNLEASED, attempts(run), 0, ARGV[at + 3]))
    else
      local tried, err = attempts(run), lasterror(run)
      if kind == 2 then err = ARGV[at + 3] else tried = tried - 1 end -- Retry; the rest do not count
      if kind == 4 then due = rundue(run) else due = after(tonumber(sub(ARGV[at + 2], 2))) end -- Release
      wait(key, head, due)
      if tried == 0 and err == '' then
        put('-r', key)
      else
        put('+r', key, newrun(due, 0, UNLEASED, tried, 0, err))
      end
    end
    if due and (not earliest or due < earliest) then earliest = due end
  end
end

if applynotes() and (not earliest or now < earliest) then earliest = now end
local next_due = earliest and select(2, horizon())
reply = concat(answer)
call('ZREM', leases, '')
flush()
remember('end', reply)
if earliest and (next_due == 0 or earliest < next_due) then publish('E' .. int(earliest)) end
return {reply, horizon()}
