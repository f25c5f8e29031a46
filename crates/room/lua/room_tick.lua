-- room_tick: time passes in a waiting room; visitors inside were there.
--
-- KEYS, ARGV: see room_state.lua. Then ARGV: visitors whose sessions live on, eight bytes each.
--
-- Calls whom pace and room allow. It may be made again: a session that is renewed twice lives as long.
--
-- Returns the header.

for i = 5, #ARGV do
  if redis.call('ZADD', KEYS[3], until_ms, ARGV[i]) == 1 then
    -- One of those of whom only their number was known.
    alive = alive + 1
    state.ghosts = max(state.ghosts - 1, 0)
  end
end
call()
return finish()
