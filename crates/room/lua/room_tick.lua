-- room_tick: time passes in a waiting room; visitors inside were there.
--
-- KEYS, ARGV: see room_state.lua. Then for each visitor whose session lives on
--   ARGV  visitor (eight bytes), and `-`, or for one whom a gateway has let in by itself while Redis was away: the place in the
--         order after a draw, 0 for none
--   KEYS  for each of these with a place, its bucket of places, see room_ask.lua
--
-- Calls whom pace and room allow. It may be made again: a session that is renewed twice lives as long.
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
    -- One of those of whom only their number was known.
    state.ghosts = max(state.ghosts - 1, 0)
  end
  if order and order > 0 then bucket = bucket + 1 end
end
call()
return finish()
