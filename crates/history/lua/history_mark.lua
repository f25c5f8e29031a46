-- history_mark: how far the views of a log are in this Redis, noted beside the lists when they have what comes before.
--
-- KEYS: 1 mark (hash: a position of 20 digits by source)
-- ARGV: 1 the source, 2 where what was noted now begins, 3 where it ends
--
-- Returns 1; or 0, and nothing is changed, if the mark is before ARGV[2] or not there: this Redis has lost what was noted since.
-- A mark behind ARGV[2] is as good: the same is noted again.

local mark = redis.call('HGET', KEYS[1], ARGV[1])
if not mark or mark < ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
