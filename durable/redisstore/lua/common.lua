-- common.lua precedes every script about a shard.
--
-- KEYS, the same in all of them, with one hash tag:
--    1..4  w0..w3  sorted sets, a lane each: key → due ms         waiting timers
--    5     l       sorted set: key → end of the lease, ms         leased timers and plans
--    6     b       hash: key → head                               timers and plans in any state
--    7     B       hash: reference → body of more than 2 KiB
--    8     r       hash: key → run                                timers claimed before, until they end
--    9     n       hash: key → due ms (8 bytes), head             successors
--   10     d       sorted set: key → time of death, ms            dead letters
--   11     m       hash: f fence, s shards, x dropped, c scheduled  the shard's record
--   12     w4      sorted set, the lane of plans: key → due ms    waiting plans
--   13     i       sorted set: key → 0                            plans, in order
--   14     h       hash: key → history                            plans
--   15     p       hash with an expiry, the log of this client: n the highest number of a request
--                  that was executed, o the numbers in flight with it, and for each kind
--                  8 bytes number of the last request, and its reply
-- ARGV, the same in all of them:
--    1     clock: empty; tests: "=ms" instead of TIME, or ms to add to it
--    2, 3  PUBLISH, SPUBLISH or empty, and the channel
--    4     of scripts that change something: the order. That is the number of the request, and a
--          space; the deadline, ms; and the numbers of other requests in flight, if any, with a
--          comma before and after each. For an extension it is the deadline alone.
--
-- head   1 byte lane + 16 if the body is in B, 1 byte length of the topic, 16 bytes ID,
--        topic, and the body, or its size (4 bytes) and its reference in B (16 bytes)
-- run    8 bytes due, 8 bytes fence, 16 bytes token, 4 bytes attempts, 1 byte flags
--        (1: cancelled), the last error
-- history  1 byte wake (store.Wake), 1 byte number of notes, 6 bytes each: how many occurrences
--        are done, dead and cancelled, and the notes, the latest last
-- note   1 byte outcome (store.OccurrenceOutcome) + 4 if the occurrence's key after its zero byte
--        is 13 digits; these as a number (6 bytes), or else 2 bytes length and the text; begun
--        and ended, 6 bytes each; 2 bytes attempts; 1 byte length of the error, and the error
-- Numbers in them are little-endian.
--
-- A script reads, then decides, then writes: a fixed number of calls with at most 500 keys each;
-- 1000 if it claims timers and plans. Bodies of more than 2 KiB are read only for a reply.

local call, sub, byte, char = redis.call, string.sub, string.byte, string.char
local pack, unstruct = struct.pack, struct.unpack
local floor, min, concat, format = math.floor, math.min, table.concat, string.format

local lanes = {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[12]} -- the fifth is the lane of plans
local leases, heads, blobs, runs, succ, dead, meta, index, histories, log =
  KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[13], KEYS[14], KEYS[15]

local LATEST = 9223372036854 -- ms, in the year 2262
local KEEP = 60000           -- minimum time, in ms, that a reply is kept
local NOTES, ERROR = 10, 100 -- store.MaxNotes, store.MaxNoteError

-- now is the present rounded down. soon is the present rounded up; delays above zero count from
-- soon, so that no timer is early.
local micros
do
  local t, clock = call('TIME'), ARGV[1]
  micros = t[1] * 1000000 + t[2]
  if sub(clock, 1, 1) == '=' then
    micros = sub(clock, 2) * 1000
  elseif clock ~= '' then
    micros = micros + clock * 1000
  end
end
local now, soon = floor(micros / 1000), math.ceil(micros / 1000)

-- int formats a whole number of up to 53 bits; Lua's own conversion keeps 14 digits. Many numbers
-- in a row are equal, and format is the slowest step.
local last_int, last_text
local function int(x)
  if x ~= last_int then last_int, last_text = x, format('%.0f', x) end
  return last_text
end

local function after(ms)
  if ms <= 0 then return now end
  return min(soon + ms, LATEST)
end

local function lane(head) return min(byte(head, 1) % 16, 4) + 1 end
local function isplan(key) return byte(key, -1) == 0 end
local function big(head) return byte(head, 1) >= 16 end
local function ref(head) return sub(head, -16) end
local function bodysize(head)
  if big(head) then return (unstruct('<I4', head, #head - 19)) end
  return #head - 18 - byte(head, 2)
end

local function newrun(due, fence, token, attempts, flags, err)
  return pack('<i8i8c16I4B', due, fence, token, attempts, flags) .. err
end
local UNLEASED = string.rep('\0', 16)
local function rundue(run) return (unstruct('<i8', run)) end
local function fence(run) return (unstruct('<I8', run, 9)) end
local function holder(run) return sub(run, 9, 32) end
local function attempts(run) return (unstruct('<I4', run, 33)) end
local function cancelled(run) return byte(run, 37) % 2 == 1 end
local function lasterror(run) return sub(run, 38) end

-- mget and zmscore return false for missing keys.
local function mget(hash, keys)
  if #keys == 0 then return {} end
  return call('HMGET', hash, unpack(keys))
end
local function zmscore(set, keys)
  if #keys == 0 then return {} end
  return call('ZMSCORE', set, unpack(keys))
end

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

-- horizon returns the present, the earliest due time and the earliest end of a lease; 0 if there is
-- none.
local function horizon()
  local due = 0
  for i = 1, 5 do
    local first = call('ZRANGE', lanes[i], 0, 0, 'WITHSCORES')[2]
    if first then
      first = tonumber(first)
      if due == 0 or first < due then due = first end
    end
  end
  return now, due, tonumber(call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or 0)
end

-- publish returns the command's reply, which may be an error. It comes after the writes, and its
-- error must not hide them: a user's rights can change, and polls find unannounced timers.
local function publish(message)
  if ARGV[2] ~= '' then return redis.pcall(ARGV[2], ARGV[3], message) end
end

-- The writes of a script, collected so that each command is one call.
local rem_w, add_w = {{}, {}, {}, {}, {}}, {{}, {}, {}, {}, {}}
local rem_l, add_l, rem_d, add_d = {}, {}, {}, {}
local del_h, set_h, del_b, set_b, del_r, set_r, del_n, set_n = {}, {}, {}, {}, {}, {}, {}, {}
local rem_i, add_i, del_y, set_y = {}, {}, {}, {} -- index and histories

local function put(list, a, b)
  local n = #list
  list[n + 1] = a
  if b then list[n + 2] = b end
end

-- unindex removes a plan from the index, and its history.
local function unindex(key)
  put(rem_i, key)
  put(del_y, key)
end

-- forget frees the head's body and all records of the key that are in hashes.
local function forget(key, head)
  put(del_h, key)
  put(del_r, key)
  if head and big(head) then put(del_b, ref(head)) end
  if isplan(key) then unindex(key) end
end

-- notes are the ends of occurrences that are not in the histories yet. waits holds, for each plan
-- that this script makes wait, the number of notes before that.
local notes, waits = {}, {}

-- wait makes a timer wait. Its head is written, or will be.
local function wait(key, head, due)
  put(add_w[lane(head)], int(due), key)
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
    if history_of[i] then put(set_y, plans[i], history_of[i]) end
  end
  for i = 1, #woken do put(add_w[5], int(now), woken[i]) end
  notes = {}
  return #woken > 0
end

-- succeed replaces a timer that has ended by its successor, and returns when that is due.
local function succeed(key, head, successor)
  forget(key, head)
  put(del_n, key)
  local due, h = unstruct('<i8', successor), sub(successor, 9)
  put(set_h, key, h)
  wait(key, h, due)
  return due
end

local function send(command, key, list)
  if #list == 0 then return end
  call(command, key, unpack(list))
  for i = #list, 1, -1 do list[i] = nil end
end

-- flush writes. The writes that free memory come first, so a key that is both removed and set is
-- set. A key in the index has a head, even if flush ends midway.
local function flush()
  for i = 1, 5 do send('ZREM', lanes[i], rem_w[i]) end
  send('ZREM', leases, rem_l)
  send('ZREM', dead, rem_d)
  send('ZREM', index, rem_i)
  send('HDEL', histories, del_y)
  send('HDEL', heads, del_h)
  send('HDEL', blobs, del_b)
  send('HDEL', runs, del_r)
  send('HDEL', succ, del_n)
  for i = 1, 5 do send('ZADD', lanes[i], add_w[i]) end
  send('ZADD', leases, add_l)
  send('ZADD', dead, add_d)
  send('HSET', heads, set_h)
  send('HSET', blobs, set_b)
  send('HSET', runs, set_r)
  send('HSET', succ, set_n)
  send('ZADD', index, add_i)
  send('HSET', histories, set_y)
end

-- late returns an error if the deadline of a request has passed.
local function late(deadline)
  if now >= tonumber(deadline) then return redis.error_reply('EXPIRED ' .. int(now)) end
end

-- keep keeps the log for KEEP from now, for ms if that is more, and at least as long as before.
local function keep(ms) call('PEXPIRE', log, int(math.max(KEEP, ms or 0, call('PTTL', log)))) end

-- A client numbers its requests that change something in a shard, with one count for all kinds, and
-- has at most one of each kind in flight. admit returns three values:
--   1. the reply to the first execution, if the request is sent again. admit then also extends the
--      log's expiry, so that WAIT has a write to wait for: in Valkey, WAIT waits only for the
--      connection's own writes.
--   2. an error, if the request may not take effect any more, because its call had returned before
--      a later request began, or its deadline has passed.
--   3. the last reply of the kind, to another request.
local number, open, newest

local function admit(kind)
  local deadline
  number, deadline, open = string.match(ARGV[4], '^(%d+) (%d+)(.*)$')
  local last, in_flight, kept = unpack(call('HMGET', log, 'n', 'o', kind))
  if kept and unstruct('<I8', kept) == tonumber(number) then
    keep()
    return sub(kept, 9)
  end
  newest = not last or tonumber(number) > tonumber(last)
  if not newest and not string.find(in_flight, ',' .. number .. ',', 1, true) then
    return nil, redis.error_reply('OVERTAKEN by a later request')
  end
  return nil, late(deadline), kept and sub(kept, 9)
end

-- remember writes the reply to the log. It comes after all other writes of a request: if one of them
-- fails, there is no reply for a repeated request. The reply is kept for ms if that is more than KEEP.
local function remember(kind, payload, ms)
  payload = pack('<I8', tonumber(number)) .. payload
  if newest then
    call('HSET', log, 'n', number, 'o', open, kind, payload)
  else
    call('HSET', log, kind, payload)
  end
  keep(ms)
end
