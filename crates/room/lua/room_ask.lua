-- room_ask: visitors of a waiting room ask for places or for entry, one after the other.
--
-- KEYS, ARGV: see room_state.lua. Then for each visitor
--   KEYS  its bucket of places (hash: visitor to place; `-<order>` once the place was taken up), and that of its address
--         (hash: address to `<window>:<places taken in it>`)
--   ARGV  visitor (eight bytes), place in the visitor's pass (0: none), the same in the order after a draw, joined_ms,
--         hash of the address (eight bytes; empty: it does not count)
--
-- It may be made again: who has a place gets the same, who is inside stays inside.
--
-- Returns the header, and for each visitor a status and a place:
--   0 waits at the place · 1 is inside · 2 was called, but there is no room at the moment · 3 no place is given yet, as Redis
--   has lost the room, or the question is too old · 4 too many wait · 5 the address has taken enough places · 6 nobody gets a place

-- The place at which a visitor waits for room, in the order after a draw.
local function held_order(visitor)
  return has_holds and tonumber(redis.call('ZSCORE', KEYS[5], visitor))
end

-- Whether the address may take one more place, which is then taken.
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

-- WAITS_MS in crates/room/src/state.rs.
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

-- Whether there is room for a called place: for those who were called earlier there must be room, too. Who was called in the
-- same window and has not asked yet does not count.
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

-- Keeps the place of a called visitor for whom there is no room, for another claim.
local function hold(ask)
  local ends_ms = string.format('-%.0f', state.clock_ms + claim_ms + window_ms)
  redis.call('ZADD', KEYS[5], string.format('%.0f', ask.order), ask.visitor, ends_ms, ask.visitor .. '!')
  has_holds = true
  local last = state.lapsed
  for _, window in ipairs(ask.order > state.lapsed and windows or {}) do
    if window.to >= ask.order then
      -- After a loss nobody knows how many were called.
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
    -- Asked twice: the first answer may have been lost.
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
  -- Nobody waited before them.
  if ask.status == 0 and ask.given > before and not is_lobby and ask.given <= state.head then
    if not redis.call('ZSCORE', KEYS[3], ask.visitor) then enter(ask, ask.given) end
    ask.status = 1
  end
  replies[#replies + 1] = ask.status
  replies[#replies + 1] = ask.given
end
return { finish(), replies }
