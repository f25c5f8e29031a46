-- link_segment: raises the counter of short link numbers.
--
-- KEYS: 1 counter
-- ARGV: 1 increment, 2 minimum value before the increment
--
-- Returns the new value. If Redis has lost the counter, it continues at the minimum: the numbers that are used up in SQL.
-- A caller owns a segment only after its INSERT in SQL, so a counter that is too low costs time, but no number is used
-- twice.

local at = tonumber(redis.call('GET', KEYS[1]) or '0')
if not at or at < tonumber(ARGV[2]) then redis.call('SET', KEYS[1], ARGV[2]) end
return redis.call('INCRBY', KEYS[1], ARGV[1])
