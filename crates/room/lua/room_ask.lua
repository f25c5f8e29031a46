-- room_ask: visitors of a waiting room request positions or admission, one after the other.
--
-- KEYS, ARGV: see room_state.lua. Then for each visitor
--   KEYS  its bucket of positions (hash: visitor to position; `-<order>` once the position is claimed), and the bucket of its
--         address (hash: address to `<window>:<positions taken in it>`)
--   ARGV  visitor (eight bytes), position in the visitor's token (0: none), the same position in the order after a draw,
--         joined_ms, hash of the address (eight bytes; empty: not limited)
--
-- The call is repeatable: a visitor with a position gets the same one, and an active session stays active.
--
-- Returns {header, replies}; replies has for each visitor a status and a position:
--   0 waits at the position · 1 has an active session · 2 is called, but has no capacity yet · 3 no position assigned,
--   because Redis has lost the room or the request is too old · 4 too many visitors wait · 5 the address has its maximum of
--   positions · 6 the room assigns no positions

-- The position of a visitor who waits for capacity, in the order after a draw.
local function held_order(visitor)
  return has_holds and tonumber(redis.call('ZSCORE', KEYS[5], visitor))
end

-- Whether the address may take one more position. If so, counts it.
local function charge(bucket, address)
  if address_max == 0 or address == '' then return true end
  local window = floor(now_ms / address_ms)
  local of, count = string.match(redis.call('HGET', bucket, address) or '', '^(%d+):(%d+)$')
  count = tonumber(of) == window and tonumber(count) or 0
  if count >= address_max then return false end
  redis.call('HSET', bucket, address, string.format('%.0f:%.0f', window, count + 1))
  redis.call('PEXPIRE', bucket, address_ms)
  sweep(bucket, function(text) return tonumber(string.match(text, '^%d+')) ~= window end)
  return true
end

local function give(ask, known)
  if known > 0 and (is_open(known, state.lapsed) or held_order(ask.visitor)) then return 0, known end
  if is_settling or is_late then return 3, 0 end
  if not takes_newcomers then return 6, 0 end
  if queue_max > 0 and state.seq - state.head >= queue_max then return 4, 0 end
  if not charge(ask.address_bucket, ask.address) then return 5, 0 end
  state.seq = state.seq + 1
  state.joined = state.joined + 1
  keep(ask.bucket, ask.visitor, state.seq)
  return 0, state.seq
end

-- See WAITS_MS in crates/room/src/state.rs.
local WAITS_MS = { 1000, 5000, 15000, 30000, 60000, 120000, 300000, 600000, 1200000, 1800000, 3600000, 7200000 }

local function enter(ask, order)
  redis.call('ZADD', KEYS[3], until_ms, ask.visitor)
  alive = alive + 1
  take_up(ask.bucket, ask.visitor, order)
  state.entered = state.entered + 1
  local wait_ms, class = now_ms - max(ask.joined_ms, state.drew), 0
  for i, max_ms in ipairs(WAITS_MS) do
    if wait_ms > max_ms then class = i end
  end
  redis.call('HINCRBY', KEYS[4], class, 1)
end

-- Whether there is capacity for a called position and for all visitors who were called earlier. Visitors of the same
-- window without a request do not count.
local function has_room(order)
  if active_max == 0 then return true end
  local ahead, last = holding(1, min(state.lapsed, order - 1)), state.lapsed
  for _, window in ipairs(windows) do
    if window.to >= order then
      ahead = ahead + holding(last + 1, order - 1)
      break
    end
    ahead = ahead + max(window.left, holding(last + 1, window.to))
    last = window.to
  end
  return active_max - inside() > ahead
end

-- Keeps the position of a called visitor without capacity for another claim period.
local function hold(ask)
  local ends_ms = string.format('-%.0f', state.clock_ms + claim_ms + window_ms)
  redis.call('ZADD', KEYS[5], string.format('%.0f', ask.order), ask.visitor, ends_ms, ask.visitor .. '!')
  has_holds = true
  local last = state.lapsed
  for _, window in ipairs(ask.order > state.lapsed and windows or {}) do
    if window.to >= ask.order then
      -- After data loss, the number of called positions is unknown.
      window.left = max(window.left, holding(last + 1, window.to))
      break
    end
    last = window.to
  end
end

local function answer(ask)
  if redis.call('ZSCORE', KEYS[3], ask.visitor) then
    redis.call('ZADD', KEYS[3], until_ms, ask.visitor)
    return 1, ask.place
  end
  local known = tonumber(redis.call('HGET', ask.bucket, ask.visitor) or 0)
  if ask.place == 0 then return give(ask, known) end
  if ask.order > state.head or is_lobby then return 0, ask.place end
  local is_used = known < 0 and -known > state.floor
  local is_over = ask.order <= state.lapsed and held_order(ask.visitor) ~= ask.order
  if is_over or is_used then
    -- A repeated request: the first reply may have been lost.
    return give(ask, known ~= ask.place and max(known, 0) or 0)
  end
  if is_settling then return 2, ask.place end
  if not has_room(ask.order) then
    hold(ask)
    return 2, ask.place
  end
  enter(ask, ask.order)
  return 1, ask.place
end

local asks, replies, before = {}, {}, state.seq
for i = 5, #ARGV, 5 do
  local at = (i - 5) / 5 * 2 + 6
  local ask = {
    bucket = KEYS[at], address_bucket = KEYS[at + 1], visitor = ARGV[i], place = tonumber(ARGV[i + 1]),
    order = tonumber(ARGV[i + 2]), joined_ms = tonumber(ARGV[i + 3]), address = ARGV[i + 4],
  }
  asks[#asks + 1] = ask
  ask.status, ask.given = answer(ask)
end
call()
for _, ask in ipairs(asks) do
  -- No visitor waited before them.
  if ask.status == 0 and ask.given > before and not is_lobby and ask.given <= state.head then
    if not redis.call('ZSCORE', KEYS[3], ask.visitor) then enter(ask, ask.given) end
    ask.status = 1
  end
  replies[#replies + 1] = ask.status
  replies[#replies + 1] = ask.given
end
return { finish(), replies }
