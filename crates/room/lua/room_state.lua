-- room_state: the state of one waiting room, exactly as in crates/room/src/model.rs. The model and docs/adr/0036 document
-- the reasons. Precedes every script that needs it.
--
-- KEYS:
--   1  state    string: 16 numbers (FIELDS), the seed in hexadecimal digits or -, for each window of called positions the
--               time of the call, its last position, and its number of unclaimed positions, and at the end `lapsed` and
--               `clock_ms`
--   2  setting  string: version, mode, per_minute, active_max, opens_at_ms: see room_set.lua
--   3  inside   sorted set: visitors by the end of their session
--   4  waits    hash: class of waits to its number of entries; `m0` to `m11`, in rotation: "<slot>:<entries in the slot>",
--               where a slot is a number of SLOT_MS since the Unix epoch
--   5  holds    sorted set: called visitors who wait for capacity, by their positions; and each of them again, with `!`
--               appended, by minus the time at which it loses its position unless it makes another request
-- ARGV:
--   1  terms    session_ms claim_ms queue_max address_max address_ms life_ms
--   2  setting  the setting in force if KEYS[2] is missing
--   3  seen     the caller's state of the room: seq head floor inside drew base drawn seed_of called asked_ms
--   4  seed     the seed for the opening seed_of, in hexadecimal digits; - for none
--
-- No number falls below the caller's value, so callers restore what Redis has lost. A room that was missing in Redis
-- assigns no positions and calls no visitors for SETTLE_MS.
--
-- The header, which scripts return: seq head floor inside called is_settling is_lobby version mode per_minute active_max
-- opens_at_ms opening drew base drawn seed_of seed joined entered missed now_ms.
--
-- Windows and holds end by `clock_ms`. It follows the time, but advances by at most a quarter of `claim_ms` per call:
-- visitors cannot claim positions during a Redis outage, and a change of the clock does not end a claim period. It stops
-- before an opening.
--
-- `lapsed`: called positions up to this one have expired, unless a hold keeps them. `floor` stays below all holds. So
-- gateways can restore it after a loss, and no visitor who waits for capacity loses the position.
--
-- All numbers are integers below 2^53.

local SETTLE_MS = 2000
local GRACE_MS = 5000
local LATE_MS = 2000
local ENTRY_COST = 60000
local SLOT_MS = 5000
local SLOTS = 12

local min, max, floor = math.min, math.max, math.floor

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)

local function words(text)
  local list = {}
  for word in string.gmatch(text, '%S+') do list[#list + 1] = word end
  return list
end

local function numbers(text)
  local list = words(text)
  for i = 1, #list do list[i] = tonumber(list[i]) end
  return list
end

local session_ms, claim_ms, queue_max, address_max, address_ms, life_ms = unpack(numbers(ARGV[1]))
local version, mode, per_minute, active_max, opens_at_ms = unpack(numbers(redis.call('GET', KEYS[2]) or ARGV[2]))
local window_ms = floor(claim_ms / 32)
local until_ms = now_ms + session_ms + GRACE_MS

-- The modes: see Mode in crates/room/src/setting.rs.
local calls_places = mode == 0 or mode == 2
local takes_newcomers = mode == 0 or mode == 1

local seen = {}
do
  local list = numbers(ARGV[3])
  for i, name in ipairs({ 'seq', 'head', 'floor', 'inside', 'drew', 'base', 'drawn', 'seed_of', 'called', 'asked_ms' }) do
    seen[name] = list[i]
  end
end

local FIELDS = {
  'seq', 'head', 'floor', 'settles_ms', 'credit', 'credit_ms', 'ghosts', 'ghosts_ms', 'opening', 'drew', 'base', 'drawn',
  'seed_of', 'joined', 'entered', 'missed',
}
local state, seed, windows = {}, '-', {}
do
  local list = words(redis.call('GET', KEYS[1]) or '')
  local is_there = #list > #FIELDS
  for i, name in ipairs(FIELDS) do state[name] = is_there and tonumber(list[i]) or 0 end
  if is_there then
    seed = list[#FIELDS + 1]
    for i = #FIELDS + 2, #list - 2, 3 do
      local window = { at_ms = tonumber(list[i]), to = tonumber(list[i + 1]), left = tonumber(list[i + 2]) }
      windows[#windows + 1] = window
    end
    -- Gateways from before 2026-11-28 write neither of the two.
    local has_clock = (#list - #FIELDS - 1) % 3 == 2
    state.lapsed = has_clock and tonumber(list[#list - 1]) or state.floor
    state.clock_ms = has_clock and tonumber(list[#list]) or state.credit_ms
  else
    state.settles_ms, state.credit_ms, state.ghosts_ms = now_ms + SETTLE_MS, now_ms, until_ms
    state.lapsed, state.clock_ms = 0, now_ms
  end
end
local entered_before = state.entered
local elapsed_ms = max(now_ms - state.credit_ms, 0)
local function is_before_opening() return state.opening > 0 and state.drew ~= state.opening end
if not is_before_opening() then state.clock_ms = state.clock_ms + min(elapsed_ms, floor(claim_ms / 4)) end
-- The clock of Redis was set back.
local back_ms = max(state.credit_ms - now_ms, 0)
state.settles_ms = max(state.settles_ms - back_ms, 0)
state.ghosts_ms = max(state.ghosts_ms - back_ms, 0)

redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now_ms)
local alive = redis.call('ZCARD', KEYS[3])
local is_settling = now_ms < state.settles_ms
-- Redis was stalled: the caller has already answered the request in another way.
local is_late = seen.asked_ms > 0 and now_ms - seen.asked_ms > LATE_MS

-- The number of visitors with positions in this range who wait for capacity.
local has_holds = redis.call('EXISTS', KEYS[5]) == 1
local function holding(first, last)
  if not has_holds or first > last then return 0 end
  return redis.call('ZCOUNT', KEYS[5], string.format('%.0f', first), string.format('%.0f', last))
end

local function release(visitor)
  if has_holds then redis.call('ZREM', KEYS[5], visitor, visitor .. '!') end
end

-- The number of called positions that are not claimed.
local function called()
  local count = holding(1, state.lapsed)
  for _, window in ipairs(windows) do count = count + window.left end
  return count
end

-- Redis has lost the holds: their visitors get another claim period.
if not has_holds and state.floor < state.lapsed then
  table.insert(windows, 1, { at_ms = state.clock_ms, to = state.lapsed, left = 0 })
  state.lapsed = state.floor
end

-- Restores the caller's state.
state.floor = max(state.floor, seen.floor)
state.lapsed = max(state.lapsed, state.floor)
if seen.head > state.head then
  state.head = seen.head
  windows[#windows + 1] = { at_ms = state.clock_ms, to = seen.head, left = 0 }
end
if is_settling and #windows > 0 then
  local last = windows[#windows]
  last.left = last.left + max(seen.called - called(), 0)
end
state.seq = max(state.seq, seen.seq, state.head)
if seen.drew > state.drew then
  state.drew, state.base, state.drawn, state.opening = seen.drew, seen.base, seen.drawn, seen.drew
end
if now_ms >= state.ghosts_ms then
  state.ghosts = 0
elseif is_settling then
  state.ghosts = max(state.ghosts, seen.inside - alive)
end

-- Expires positions that were called and not claimed.
if has_holds then
  local ended = redis.call('ZRANGEBYSCORE', KEYS[5], string.format('-%.0f', state.clock_ms), '(0')
  for _, member in ipairs(ended) do
    local visitor = string.sub(member, 1, -2)
    local order = tonumber(redis.call('ZSCORE', KEYS[5], visitor))
    if order and order <= state.lapsed then state.missed = state.missed + 1 end
    release(visitor)
  end
end
while windows[1] and windows[1].at_ms + claim_ms + window_ms <= state.clock_ms do
  local window = table.remove(windows, 1)
  state.missed = state.missed + max(window.left - holding(state.lapsed + 1, window.to), 0)
  state.lapsed = max(state.lapsed, window.to)
end

local function raise_floor()
  local first = has_holds and redis.call('ZRANGEBYSCORE', KEYS[5], '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1) or {}
  state.floor = max(state.floor, first[2] and min(state.lapsed, tonumber(first[2]) - 1) or state.lapsed)
end
raise_floor()

-- A new opening takes effect after all visitors of the last draw have passed, and draws all who wait. An opening before
-- the last draw is already done.
if state.floor >= state.drawn then
  state.opening = opens_at_ms > 0 and max(opens_at_ms, state.drew) or 0
end
if state.opening > 0 and state.seed_of ~= state.opening and seen.seed_of == state.opening then
  state.seed_of, seed = seen.seed_of, ARGV[4]
end
if state.opening > 0 and state.drew ~= state.opening and state.opening <= now_ms and state.seed_of == state.opening
    and not is_settling then
  state.drew, state.base, state.drawn = state.opening, state.head, state.seq
end
local is_lobby = is_before_opening()

-- No rate needs longer than ENTRY_COST for one entry.
state.credit = min(state.credit + min(elapsed_ms, ENTRY_COST) * per_minute, max(ENTRY_COST, per_minute * 2000))
state.credit_ms = now_ms

local function inside() return alive + state.ghosts end

-- Calls the positions that rate and capacity allow.
local function call()
  if is_settling or is_lobby or not calls_places then return end
  local count = state.seq - state.head
  if per_minute > 0 then count = min(count, floor(state.credit / ENTRY_COST)) end
  if active_max > 0 then count = min(count, active_max - inside() - called()) end
  if count <= 0 then return end
  if per_minute > 0 then state.credit = state.credit - count * ENTRY_COST end
  state.head = state.head + count
  local last = windows[#windows]
  if last and state.clock_ms < last.at_ms + window_ms then
    last.to, last.left = state.head, last.left + count
  else
    windows[#windows + 1] = { at_ms = state.clock_ms, to = state.head, left = count }
  end
end

-- Counts the entries of this call.
local function note_entries()
  local count, slot = state.entered - entered_before, floor(now_ms / SLOT_MS)
  if count == 0 then return end
  local field = 'm' .. slot % SLOTS
  local of, before = string.match(redis.call('HGET', KEYS[4], field) or '', '^(%d+):(%d+)$')
  if tonumber(of) == slot then count = count + tonumber(before) end
  redis.call('HSET', KEYS[4], field, string.format('%.0f:%.0f', slot, count))
end

local SWEEP_LEN = 96

-- Removes outdated entries of a bucket, occasionally, if it has grown.
local function sweep(bucket, is_over)
  if state.seq % 16 ~= 0 or redis.call('HLEN', bucket) < SWEEP_LEN then return end
  local entries, over = redis.call('HGETALL', bucket), {}
  for i = 1, #entries, 2 do
    if is_over(entries[i + 1]) and #over < 1000 then over[#over + 1] = entries[i] end
  end
  if #over > 0 then redis.call('HDEL', bucket, unpack(over)) end
end

-- Whether a position may still be called or claimed, if all up to `last` have expired.
local function is_open(place, last)
  if place > state.base and place <= state.drawn then return last < state.drawn end
  return place > last
end

local function is_place_over(text)
  local place = tonumber(text)
  if place < 0 then return -place <= state.floor end
  return not is_open(place, state.floor)
end

local function keep(bucket, visitor, place)
  redis.call('HSET', bucket, visitor, string.format('%.0f', place))
  redis.call('PEXPIRE', bucket, life_ms)
  sweep(bucket, is_place_over)
end

-- A called visitor enters, which uses up the position.
local function take_up(bucket, visitor, order)
  keep(bucket, visitor, -order)
  release(visitor)
  for _, window in ipairs(order > state.lapsed and windows or {}) do
    if window.to >= order then
      window.left = max(window.left - 1, 0)
      break
    end
  end
end

-- Writes the state. Returns the header.
local function finish()
  note_entries()
  raise_floor()
  local list = {}
  for i, name in ipairs(FIELDS) do list[i] = string.format('%.0f', state[name]) end
  list[#list + 1] = seed
  for _, window in ipairs(windows) do
    list[#list + 1] = string.format('%.0f %.0f %.0f', window.at_ms, window.to, window.left)
  end
  list[#list + 1] = string.format('%.0f %.0f', state.lapsed, state.clock_ms)
  redis.call('SET', KEYS[1], table.concat(list, ' '))
  return {
    state.seq, state.head, state.floor, inside(), called(), is_settling and 1 or 0, is_lobby and 1 or 0,
    version, mode, per_minute, active_max, opens_at_ms, state.opening, state.drew, state.base, state.drawn,
    state.seed_of, seed, state.joined, state.entered, state.missed, now_ms,
  }
end

