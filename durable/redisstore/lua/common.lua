-- common.lua precedes every script about a shard; runs.lua follows it in those about runs, their
-- ends and plans.
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
-- 1000 if it claims timers and plans. Bodies of more than 2 KiB are read only for a reply. Numbers
-- among the arguments of calls are texts: Redis would format each with 17 digits, which takes as
-- long as a short command.

local call, sub, byte, char = redis.call, string.sub, string.byte, string.char
local pack, unstruct = struct.pack, struct.unpack
local floor, min, concat, format = math.floor, math.min, table.concat, string.format

local lanes = {KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[12]} -- the fifth is the lane of plans
local leases, heads, blobs, runs, succ, dead, meta, index, histories, log =
  KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[13], KEYS[14], KEYS[15]

local LATEST = 9223372036854 -- ms, in the year 2262
local KEEP = 60000           -- minimum time, in ms, that a reply is kept

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

-- mget and zmscore return false for missing keys.
local function mget(hash, keys)
  if #keys == 0 then return {} end
  return call('HMGET', hash, unpack(keys))
end
local function zmscore(set, keys)
  if #keys == 0 then return {} end
  return call('ZMSCORE', set, unpack(keys))
end

-- horizon returns the present, the earliest due time and the earliest end of a lease; 0 if there is
-- none.
local function horizon()
  local due = 0
  for i = 1, 5 do
    local first = call('ZRANGE', lanes[i], '0', '0', 'WITHSCORES')[2]
    if first then
      first = tonumber(first)
      if due == 0 or first < due then due = first end
    end
  end
  return now, due, tonumber(call('ZRANGE', leases, '0', '0', 'WITHSCORES')[2] or 0)
end

-- publish returns the command's reply, which may be an error. It comes after the writes, and its
-- error must not hide them: a user's rights can change, and polls find unannounced timers.
local function publish(message)
  if ARGV[2] ~= '' then return redis.pcall(ARGV[2], ARGV[3], message) end
end

-- The writes of a script, collected so that each command is one call. A list's name is + or - and
-- the letter of its key, for members and fields to set or remove; for lane n it is the number n or
-- -n. One table holds all lists, and few closures use many variables: to make those for each call
-- takes longer than a short script itself.
local writes = {}

local function put(name, a, b)
  local list = writes[name]
  if not list then
    list = {}
    writes[name] = list
  end
  local n = #list
  list[n + 1] = a
  if b then list[n + 2] = b end
end

-- wait makes a timer wait. Its head is written, or will be.
local function wait(key, head, due) put(lane(head), int(due), key) end

local function send(command, key, name)
  local list = writes[name]
  if list then call(command, key, unpack(list)) end
end

-- flush writes. The writes that free memory come first, so a key that is both removed and set is
-- set. A key in the index has a head, even if flush ends midway.
local function flush()
  for i = 1, 5 do send('ZREM', lanes[i], -i) end
  send('ZREM', leases, '-l')
  send('ZREM', dead, '-d')
  send('ZREM', index, '-i')
  send('HDEL', histories, '-h')
  send('HDEL', heads, '-b')
  send('HDEL', blobs, '-B')
  send('HDEL', runs, '-r')
  send('HDEL', succ, '-n')
  for i = 1, 5 do send('ZADD', lanes[i], i) end
  send('ZADD', leases, '+l')
  send('ZADD', dead, '+d')
  send('HSET', heads, '+b')
  send('HSET', blobs, '+B')
  send('HSET', runs, '+r')
  send('HSET', succ, '+n')
  send('ZADD', index, '+i')
  send('HSET', histories, '+h')
  writes = {}
end

-- late returns an error if the deadline of a request has passed.
local function late(deadline)
  if now >= tonumber(deadline) then return redis.error_reply('EXPIRED ' .. int(now)) end
end

-- keep keeps the log for KEEP from now, or for ms if that is more. It adds another KEEP, so that
-- most requests need not write the expiry; with always it writes it.
local function keep(ms, always)
  local least, left = math.max(KEEP, ms or 0), call('PTTL', log)
  if always or left < least then call('PEXPIRE', log, int(math.max(least + KEEP, left))) end
end

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
    keep(nil, true)
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
