-- room_set: the origin stores an operator's setting of a waiting room in Redis.
--
-- KEYS: setting (string: version mode per_minute active_max opens_at_ms)
-- ARGV: the new value of KEYS[1]
--
-- Returns 1, or 0 if the stored setting is at least as new, which changes nothing.

local known = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^%d+'))
if known and known >= tonumber(string.match(ARGV[1], '^%d+')) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
