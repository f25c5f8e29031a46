-- room_tick: advances the time of a waiting room, and renews sessions.
--
-- KEYS, ARGV: see room_state.lua. Then for each visitor whose session continues
--   ARGV  visitor (eight bytes), and `-`; or, for a visitor whom a gateway admitted by itself during a Redis outage, the
--         position in the order after a draw, 0 for none
--   KEYS  for each of the latter with a position, its bucket of positions: see room_ask.lua
--
-- Calls the positions that rate and capacity allow. The call is repeatable: a repeated renewal has the same effect.
--
-- Returns the header.

local bucket = 6
for i = 5, #ARGV, 2 do
  local visitor, order = ARGV[i], tonumber(ARGV[i + 1])
  local is_new = redis.call('ZADD', KEYS[3], until_ms, visitor) == 1
  if is_new then alive = alive + 1 end
  if is_new and order then
    state.entered = state.entered + 1
    if order > 0 then take_up(KEYS[bucket], visitor, order) end
  elseif is_new then
    -- Only their number was known, not their IDs.
    state.ghosts = max(state.ghosts - 1, 0)
  end
  if order and order > 0 then bucket = bucket + 1 end
end
call()
return finish()
