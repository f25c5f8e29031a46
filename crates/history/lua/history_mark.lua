-- history_mark: records up to which position the views of a log are in this Redis.
--
-- KEYS: 1 mark (hash: source to a position of 20 digits)
-- ARGV: 1 source, 2 position at which the newly stored views begin, 3 position at which they end
--
-- Returns 1, or 0 if the mark is before ARGV[2] or missing, which changes nothing: this Redis has lost stored views. A mark
-- after ARGV[2] is valid: the same views were stored again.

local mark = redis.call('HGET', KEYS[1], ARGV[1])
if not mark or mark < ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
