-- runs.lua follows common.lua in the scripts about runs, their ends and plans.

local NOTES, ERROR = 10, 100 -- store.MaxNotes, store.MaxNoteError
local UNLEASED = string.rep('\0', 16)

local function newrun(due, fence, token, attempts, flags, err)
  return pack('<i8i8c16I4B', due, fence, token, attempts, flags) .. err
end
local function rundue(run) return (unstruct('<i8', run)) end
local function fence(run) return (unstruct('<I8', run, 9)) end
local function holder(run) return sub(run, 9, 32) end
local function attempts(run) return (unstruct('<I4', run, 33)) end
local function cancelled(run) return byte(run, 37) % 2 == 1 end
local function lasterror(run) return sub(run, 38) end

-- historiesof returns the histories of the plans among keys, by key.
local function historiesof(keys)
  local plans, found = {}, {}
  for i = 1, #keys do
    if isplan(keys[i]) then plans[#plans + 1] = keys[i] end
  end
  local history_of = mget(histories, plans)
  for i = 1, #plans do found[plans[i]] = history_of[i] or nil end
  return found
end

-- unindex removes a plan from the index, and its history.
local function unindex(key)
  put('-i', key)
  put('-h', key)
end

-- forget frees the head's body and all records of the key that are in hashes.
local function forget(key, head)
  put('-b', key)
  put('-r', key)
  if head and big(head) then put('-B', ref(head)) end
  if isplan(key) then unindex(key) end
end

-- notes are the ends of occurrences that are not in the histories yet. waits holds, for each plan
-- that this script makes wait, the number of notes before that.
local notes, waits = {}, {}

local wait_only = wait
local function wait(key, head, due)
  wait_only(key, head, due)
  waits[key] = #notes
end

-- note records the end of a timer, if it is an occurrence: 1 done, 2 dead or 3 cancelled
-- (store.OccurrenceOutcome). run is its last run, or nil. If err is nil, the error is that of the
-- run.
local function note(key, outcome, run, err)
  local at = string.find(key, '\0', 1, true)
  if not at or at == #key then return end
  local name, begun, tried = sub(key, at + 1), 0, 0
  if run then
    begun, tried, err = floor(fence(run) / 1000), min(attempts(run), 65535), err or lasterror(run)
  end
  err = sub(err or '', 1, ERROR)
  local text
  if #name == 13 and not string.find(name, '%D') then
    text = pack('<BI6I6I6I2B', outcome + 4, tonumber(name), begun, now, tried, #err) .. err
  else
    text = pack('<BI2c0I6I6I2B', outcome, #name, name, begun, now, tried, #err) .. err
  end
  notes[#notes + 1] = {plan = sub(key, 1, at), outcome = outcome, text = text}
end

-- newhistory returns a history without notes; wakeof returns the first byte of a history, and
-- setwake replaces it.
local function newhistory() return string.rep('\0', 20) end
local function wakeof(history) return byte(history, 1) end
local function setwake(history, wake) return char(wake) .. sub(history, 2) end

-- counts returns how many occurrences are done, dead and cancelled.
local function counts(history) return unstruct('<I6I6I6', history, 3) end

-- withnote returns a history with one more note.
local function withnote(history, n)
  local wake, kept, done, died, cancels = unstruct('<BBI6I6I6', history)
  local outcome, first = n.outcome, 21
  if outcome == 1 then done = done + 1 elseif outcome == 2 then died = died + 1 else cancels = cancels + 1 end
  if kept == NOTES then -- drop the first
    local name = byte(history, first) >= 4 and 6 or 2 + unstruct('<I2', history, first + 1)
    local err = first + 1 + name + 14
    first, kept = err + 1 + byte(history, err), kept - 1
  end
  return pack('<BBI6I6I6', wake, kept + 1, done, died, cancels) .. sub(history, first) .. n.text
end

-- applynotes adds the notes to the histories of their plans, and makes those waiting plans due now
-- that wake on them. It returns whether there was one. A flush must follow.
local function applynotes()
  if #notes == 0 then return false end
  local plans, position, wakes = {}, {}, false
  for i = 1, #notes do
    local plan = notes[i].plan
    if not position[plan] then
      plans[#plans + 1] = plan
      position[plan] = #plans
    end
  end
  local history_of, due_of = mget(histories, plans), {}
  for i = 1, #plans do
    if history_of[i] and wakeof(history_of[i]) > 0 then wakes = true end
  end
  if wakes then due_of = zmscore(lanes[5], plans) end
  local woken = {}
  for i = 1, #notes do
    local n = notes[i]
    local at = position[n.plan]
    local history = history_of[at]
    if history then
      history = withnote(history, n)
      local wake = wakeof(history)
      if wake == 2 or wake == 1 and n.outcome == 2 then
        if due_of[at] or waits[n.plan] and waits[n.plan] < i then
          history, woken[#woken + 1] = setwake(history, 0), n.plan
        end
      end
      history_of[at] = history
    end
  end
  for i = 1, #plans do
    if history_of[i] then put('+h', plans[i], history_of[i]) end
  end
  for i = 1, #woken do put(5, int(now), woken[i]) end
  notes = {}
  return #woken > 0
end

-- succeed replaces a timer that has ended by its successor, and returns when that is due.
local function succeed(key, head, successor)
  forget(key, head)
  put('-n', key)
  local due, h = unstruct('<i8', successor), sub(successor, 9)
  put('+b', key, h)
  wait(key, h, due)
  return due
end
