-- link_segment: raises the counter of numbers of short links.
--
-- KEYS: 1 counter
-- ARGV: 1 by how much, 2 where it must stand at least before that
--
-- Returns where it stands now. A counter that Redis has lost begins where SQL says that numbers are used up:
-- whoever has inserted a segment there owns it, so one that begins too early costs time, not numbers.

local at = tonumber(redis.call('GET', KEYS[1]) or '0')
if not at or at < tonumber(ARGV[2]) then redis.call('SET', KEYS[1], ARGV[2]) end
return redis.call('INCRBY', KEYS[1], ARGV[1])
